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
	cmd := &cobra.Command{
		Use:   "show [NAME]",
		Short: "List the names that have a state, or show all that is known about a name",
		Long: "List the names that have a state: held, free, done or exhausted. With NAME show all that is known\n" +
			"about it. Times are by the clock of the store. Exit codes, with NAME: 0 it is done; 121 it is free: it\n" +
			"may be run; 122 a host runs it; 123 all attempts failed; 1 it is not known, as the store is away.",
		Example: "  activityd once show\n  until activityd once show digest > /dev/null; do sleep 60; done",
		Args:    cobra.MaximumNArgs(1),
	}
	return onceCommand(cmd, func(ctx context.Context, s *onceStore, name string) error {
		if name != "" {
			return showOnce(ctx, s, cmd.OutOrStdout(), name)
		}
		list, err := s.List(ctx)
		if err == nil && len(list) == 0 {
			sayf(cmd.ErrOrStderr(), "no name has a state")
			return nil
		}
		if err == nil {
			err = printTable(cmd.OutOrStdout(), inspect.Names(list))
		}
		return err
	})
}

// showOnce shows a name. The exit code is its state.
func showOnce(ctx context.Context, s *onceStore, out io.Writer, name string) error {
	r, err := s.Get(ctx, name)
	switch {
	case err != nil:
		return err
	case r.State.Phase == "":
		return &exitError{exitFree, noState(name)}
	}
	code := map[once.Phase]int{once.Free: exitFree, once.Held: exitBusy, once.Exhausted: exitExhausted}[r.State.Phase]
	if r.State.Expired(r.Now) {
		code = exitFree
	}
	err = printSheet(out, name, inspect.Name(once.Named{Name: name, Reply: r}))
	if err == nil && code != exitOK {
		err = &exitError{code, errSilent}
	}
	return err
}

func noState(name string) error {
	return fmt.Errorf("%s has no state: it was never run, or was forgotten", name)
}

func newOnceForget() *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "forget NAME",
		Short: "Forget the state of a name, so that it can be run again",
		Args:  cobra.ExactArgs(1),
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
