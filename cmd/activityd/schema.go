package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/schema"
)

func newSchema() *cobra.Command {
	c := &config{}
	var apply bool
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the tables that activityd uses, or create those that are missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !apply {
				_, err := fmt.Fprint(cmd.OutOrStdout(), activityd.Schema)
				return err
			}
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			return applySchema(cmd, c)
		},
	}
	cmd.Flags().BoolVar(&apply, "apply", false, "create the tables that are missing in --mysql-dsn; those that exist are left as they are")
	c.mysqlFlags(cmd.Flags())
	return cmd
}

func applySchema(cmd *cobra.Command, c *config) error {
	db, err := openMySQL(c)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // every statement's own error was looked at
	if err := schema.Apply(cmd.Context(), db); err != nil {
		return contacts.Translate(cmd.Context(), "apply the schema", err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "the %d tables are there\n", len(schema.Statements()))
	return err
}
