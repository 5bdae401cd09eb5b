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

// onceCommand completes a command that calls do with the store and with a name, which is empty if the command needs none.
// It refuses arguments behind "--": the name of a command of once is no NAME.
func onceCommand(cmd *cobra.Command, do func(ctx context.Context, s *onceStore, name string) error) *cobra.Command {
	c, want := &onceConfig{}, cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() >= 0 {
			return &exitError{exitOwn, fmt.Errorf("%s is a command of once, and cannot be a NAME; nothing was run", cmd.Name())}
		}
		return want(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := ""
		if len(args) > 0 {
			name = args[0]
			if err := once.CheckName(name); err != nil {
				return fmt.Errorf("NAME: %w", err)
			}
		}
		s, err := c.open(cmd.Context())
		if err != nil {
			return err
		}
		defer s.close()
		return do(cmd.Context(), s, name)
	}
	c.flags(cmd.Flags())
	return cmd
}

func newOnceShow() *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:   "show [NAME]",
		Short: "List the names that have a state, or show all that is known about a name",
		Long: "List the names that have a state: held, free, done or exhausted. With NAME show all that is known\n" +
			"about it. Times are by the clock of the store." + outputHelp + "\n\n" +
			"Exit codes, with NAME:\n" +
			"  0    done: it has succeeded, within --keep\n" +
			"  121  free: it may be run. It never was, or is forgotten, an attempt has failed or was handed\n" +
			"       back, or its host died and the lease has ended\n" +
			"  122  held: a host runs it\n" +
			"  123  exhausted: all attempts failed\n" +
			"  1    it is not known: bad flags, a store that is away",
		Example: "  activityd once show\n  activityd once show digest -o json\n  until activityd once show digest > /dev/null; do sleep 60; done",
		Args:    cobra.MaximumNArgs(1),
	}
	outputFlag(cmd.Flags(), &output)
	return onceCommand(cmd, func(ctx context.Context, s *onceStore, name string) error {
		if name != "" {
			return showOnce(ctx, s, cmd.OutOrStdout(), output, name)
		}
		list, err := s.List(ctx)
		if err == nil && len(list) == 0 {
			sayf(cmd.ErrOrStderr(), "no name has a state")
			return nil
		}
		if err == nil {
			err = printList(cmd.OutOrStdout(), output, list, newOnceJSON, inspect.Names)
		}
		return err
	})
}

// showOnce shows a name. The exit code is its state.
func showOnce(ctx context.Context, s *onceStore, out io.Writer, output, name string) error {
	r, err := s.Get(ctx, name)
	switch n := (once.Named{Name: name, Reply: r}); {
	case err != nil:
	case r.State.Phase == "":
		return &exitError{exitFree, noState(name)}
	case output == outputJSON:
		err = newLineEncoder(out).Encode(newOnceJSON(n))
	default:
		_, err = io.WriteString(out, sheet(name, inspect.Name(n)...))
	}
	code := map[once.Phase]int{once.Free: exitFree, once.Held: exitBusy, once.Exhausted: exitExhausted}[r.State.Phase]
	if r.State.Expired(r.Now) {
		code = exitFree
	}
	if err == nil && code != exitOK {
		err = &exitError{code, errSilent}
	}
	return err
}

func noState(name string) error {
	return fmt.Errorf("%s has no state: it was never run, or was forgotten", name)
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
		Name: n.Name, State: s.Phase, Expired: s.Expired(n.Now), Attempts: s.Attempt, MaxAttempts: s.Terms.Attempts, Fence: s.Fence,
		Owner: s.Owner, LeaseMS: s.Terms.Lease.Milliseconds(), LeaseUntil: inspect.Stamp(s.Until), BeganAt: inspect.Stamp(s.Began),
		EndedAt: inspect.Stamp(inspect.Ended(s)), KeepMS: s.Terms.Keep.Milliseconds(), ForgetAt: inspect.Stamp(s.ForgetAt), Reason: s.Reason,
	}
}

func newOnceForget() *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "forget NAME",
		Short: "Forget the state of a name, so that it can be run again",
		Long: "Forget that a name is done or exhausted, and its attempts, so that the next one runs it. Its fence\n" +
			"goes on growing. A name that is held is refused, because two commands may run at once afterwards:\n" +
			"with --force the one that runs now is ended when its lease is to be extended, within a third of it.",
		Example: "  activityd once forget digest\n  activityd once forget digest --force",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&force, "force", false, "even if it is held: two may then run it at once")
	return onceCommand(cmd, func(ctx context.Context, s *onceStore, name string) error {
		forgotten, err := once.New(s, once.Options{Notifier: s.notifier}).Forget(ctx, name, force)
		if errors.Is(err, once.ErrHeld) {
			var r once.Reply
			if r, err = s.Get(ctx, name); err == nil {
				err = fmt.Errorf("%s is held by %s, for %v more unless it is extended: another process could run it beside that one; with --force it is forgotten all the same",
					name, inspect.OneLine(r.State.Owner), r.State.Until.Sub(r.Now).Round(time.Millisecond))
			}
		}
		if err == nil && !forgotten {
			err = noState(name)
		}
		if err == nil {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "forgot %s\n", name)
		}
		return err
	})
}
