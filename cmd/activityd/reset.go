package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/index"
)

func newReset() *cobra.Command {
	c, yes := &config{}, false
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Delete all sets and the stored settings, so that they are built again",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return errors.New("this deletes all sets: stop all processes of activityd, then repeat with --yes")
			}
			newLogger(c, cmd.ErrOrStderr())
			client, err := openRedis(c.redisURL)
			if err != nil {
				return err
			}
			ix := index.New(client, index.Options{})
			sets, err := ix.Reset(cmd.Context())
			if err := errors.Join(err, ix.Close(), client.Close()); err != nil {
				return advised(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "deleted %d sets\n", sets)
			return err
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	c.redisFlags(cmd.Flags())
	return cmd
}
