package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/index"
)

func newReset() *cobra.Command {
	c := &config{}
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Delete all sets and the stored settings, so that they are built again",
		Long: "Delete all sets and the stored settings from Redis. Nothing is lost: the sets are built\n" +
			"again from MySQL as members read and tasks come in, and reads go to MySQL until then.\n" +
			"It is the way to another --need. Stop all processes first.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			if !yes {
				return errors.New("this deletes all sets: stop all processes of activityd, then repeat with --yes")
			}
			return reset(cmd, c)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	c.redisFlags(cmd.Flags())
	return cmd
}

func reset(cmd *cobra.Command, c *config) error {
	newLogger(c, cmd.ErrOrStderr())
	client, err := openRedis(c.redisURL)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // its commands' own errors were looked at
	ix := index.New(client, index.Options{})
	defer func() { _ = ix.Close() }() // likewise
	sets, err := ix.Reset(cmd.Context())
	if err != nil {
		return namedRedis(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "deleted %d sets\n", sets)
	return err
}
