package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/once"
)

// notAfterDash refuses what is not wanted, and says that these names are commands.
func notAfterDash(want cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() >= 0 {
			return &exitError{exitOwn, fmt.Errorf("%s is a command of once, and cannot be a NAME; nothing was run", cmd.Name())}
		}
		return want(cmd, args)
	}
}

// withOnce calls do with the store of the flags.
func withOnce(cmd *cobra.Command, c *onceConfig, do func(context.Context, *onceStore) error) error {
	s, err := c.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()
	return do(cmd.Context(), s)
}

func newOnceList() *cobra.Command {
	c, output := &onceConfig{}, ""
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the names that have a state",
		Long:    "List the names that have a state: held, free, done or exhausted." + outputHelp,
		Example: "  activityd once list\n  activityd once list -o json",
		Args:    notAfterDash(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withOnce(cmd, c, func(ctx context.Context, s *onceStore) error {
				list, err := s.List(ctx)
				if err != nil {
					return err
				}
				if len(list) == 0 {
					_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "no name has a state")
				}
				return printOnce(cmd.OutOrStdout(), list, output)
			})
		},
	}
	outputFlag(cmd.Flags(), &output)
	c.flags(cmd.Flags())
	return cmd
}

// printOnce writes states as a table, or as lines of JSON.
func printOnce(w io.Writer, list []once.Named, output string) error {
	if output == outputJSON {
		lines := newLineEncoder(w)
		for _, n := range list {
			if err := lines.Encode(newOnceJSON(n)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		return nil
	}
	return printTable(w, inspect.Names(list))
}

// onceJSON is a state as other programs read it.
type onceJSON struct {
	Name        string     `json:"name"`
	State       once.Phase `json:"state"`
	Expired     bool       `json:"expired,omitempty"`
	Attempts    int        `json:"attempts"`
	MaxAttempts int        `json:"max_attempts,omitempty"`
	Fence       once.Fence `json:"fence,string"`
	Owner       string     `json:"owner,omitempty"`
	LeaseMS     int64      `json:"lease_ms"`
	LeaseUntil  string     `json:"lease_until,omitempty"`
	BeganAt     string     `json:"began_at"`
	EndedAt     string     `json:"ended_at,omitempty"`
	KeepMS      int64      `json:"keep_ms"`
	ForgetAt    string     `json:"forget_at"`
	Reason      string     `json:"reason,omitempty"`
}

func newOnceJSON(n once.Named) onceJSON {
	s := n.State
	return onceJSON{
		Name: n.Name, State: s.Phase, Expired: s.Expired(n.Now), Attempts: s.Attempt, MaxAttempts: s.Terms.Attempts, Fence: s.Fence, Owner: s.Owner,
		LeaseMS: s.Terms.Lease.Milliseconds(), LeaseUntil: inspect.Stamp(s.Until), BeganAt: inspect.Stamp(s.Began), EndedAt: inspect.Stamp(inspect.Ended(s)), KeepMS: s.Terms.Keep.Milliseconds(), ForgetAt: inspect.Stamp(s.ForgetAt), Reason: s.Reason,
	}
}

func newOnceShow() *cobra.Command {
	c, output := &onceConfig{}, ""
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show all that is known about a name",
		Long:    "Show all that is known about a name. Times are by the clock of the store." + outputHelp,
		Example: "  activityd once show digest\n  activityd once show digest -o json",
		Args:    notAfterDash(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := once.CheckName(args[0]); err != nil {
				return fmt.Errorf("NAME: %w", err)
			}
			return withOnce(cmd, c, func(ctx context.Context, s *onceStore) error {
				r, err := s.Get(ctx, args[0])
				switch {
				case err != nil:
					return err
				case r.State.Phase == "":
					return noState(args[0])
				}
				n := once.Named{Name: args[0], Reply: r}
				if output == outputJSON {
					return printOnce(cmd.OutOrStdout(), []once.Named{n}, output)
				}
				_, err = io.WriteString(cmd.OutOrStdout(), onceSheet(n))
				return err
			})
		},
	}
	outputFlag(cmd.Flags(), &output)
	c.flags(cmd.Flags())
	return cmd
}

// newOnceStatus returns the command whose exit code says what a name is in.
func newOnceStatus() *cobra.Command {
	c := &onceConfig{}
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Say in a word, and by the exit code, whether a name is done",
		Long: "Say in a word, and by the exit code, whether a name is done. Nothing is changed.\n\n" +
			"Exit codes:\n" +
			"  0    done: it has succeeded, within --keep\n" +
			"  121  free: it may be run. It never was, or is forgotten, an attempt has failed or was handed\n" +
			"       back, or its host died and the lease has ended\n" +
			"  122  held: a host runs it\n" +
			"  123  exhausted: all attempts failed\n" +
			"  1    it is not known: bad flags, a store that is away",
		Example: "  activityd once status digest\n  until activityd once status digest; do sleep 60; done",
		Args:    notAfterDash(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := once.CheckName(args[0]); err != nil {
				return fmt.Errorf("NAME: %w", err)
			}
			return withOnce(cmd, c, func(ctx context.Context, s *onceStore) error {
				r, err := s.Get(ctx, args[0])
				if err != nil {
					return err
				}
				phase := r.State.Phase
				if phase == "" || r.State.Expired(r.Now) {
					phase = once.Free
				}
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), phase); err != nil || phase == once.Done {
					return err
				}
				codes := map[once.Phase]int{once.Free: exitFree, once.Held: exitBusy, once.Exhausted: exitExhausted}
				return &exitError{codes[phase], errSilent}
			})
		},
	}
	c.flags(cmd.Flags())
	return cmd
}

func noState(name string) error {
	return fmt.Errorf("%s has no state: it was never run, or was forgotten", name)
}

// onceSheet returns all that is known about a name.
func onceSheet(n once.Named) string { return sheet(n.Name, inspect.Name(n)...) }

func newOnceForget() *cobra.Command {
	c, force := &onceConfig{}, false
	cmd := &cobra.Command{
		Use:   "forget NAME",
		Short: "Forget the state of a name, so that it can be run again",
		Long: "Forget that a name is done or exhausted, and its attempts, so that the next one runs it. Its fence\n" +
			"goes on growing. A name that is held is refused, because two commands may run at once afterwards:\n" +
			"with --force the one that runs now is ended when its lease is to be extended, within a third of it.",
		Example: "  activityd once forget digest\n  activityd once forget digest --force",
		Args:    notAfterDash(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if err := once.CheckName(name); err != nil {
				return fmt.Errorf("NAME: %w", err)
			}
			return withOnce(cmd, c, func(ctx context.Context, s *onceStore) error {
				forgotten, err := once.New(s, once.Options{Notifier: s.notifier}).Forget(ctx, name, force)
				switch {
				case errors.Is(err, once.ErrHeld):
					return heldError(ctx, s, name)
				case err != nil:
					return err
				case !forgotten:
					return noState(name)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "forgot %s\n", name)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "even if it is held: two may then run it at once")
	c.flags(cmd.Flags())
	return cmd
}

// heldError says who holds a name, and what --force would mean.
func heldError(ctx context.Context, s *onceStore, name string) error {
	r, err := s.Get(ctx, name)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is held by %s, for %v more unless it is extended: another one could run it at once beside it; with --force it is forgotten all the same",
		name, inspect.OneLine(r.State.Owner), r.State.Until.Sub(r.Now).Round(time.Millisecond))
}
