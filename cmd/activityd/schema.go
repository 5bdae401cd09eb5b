package main

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/plural"
	"github.com/activityd/activityd/internal/schema"
)

// schemaDeeds say what to do with the schema, or with the triggers.
type schemaDeeds struct{ triggers, apply, remove bool }

func newSchema() *cobra.Command {
	c, deeds := &config{}, schemaDeeds{}
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print or create the tables that activityd uses, or the triggers that spare a site any change of its code",
		Long: "Print the tables that activityd uses, or create those that are missing (--apply).\n\n" +
			"With --triggers: print, install (--apply) or remove (--remove) the optional triggers that\n" +
			"keep users.last_upload and insert the tasks, so that the site itself need not do so. They\n" +
			"run with the rights of the user of --mysql-dsn who installed them. For a moment the tables\n" +
			"are locked; that is given up after 5 s of waiting. docs/adoption.md tells the rest.",
		Example: "  activityd schema --apply\n  activityd schema --triggers --apply\n  activityd schema --triggers | mysql site",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := deeds.check(); err != nil {
				return err
			}
			if !deeds.apply && !deeds.remove {
				_, err := fmt.Fprint(cmd.OutOrStdout(), deeds.text())
				return err
			}
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			return deeds.do(cmd, c)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&deeds.triggers, "triggers", false, "the triggers instead of the tables")
	f.BoolVar(&deeds.apply, "apply", false, "create the tables that are missing in --mysql-dsn, those that exist are left as they are; or install the triggers")
	f.BoolVar(&deeds.remove, "remove", false, "remove the triggers")
	asDeeds(f, "triggers", "apply", "remove")
	c.mysqlFlags(f)
	return cmd
}

func (d schemaDeeds) check() error {
	switch {
	case d.remove && !d.triggers:
		return errors.New("--remove is for triggers alone: want --triggers --remove; tables are not removed by this program")
	case d.remove && d.apply:
		return errors.New("--apply and --remove exclude each other")
	}
	return nil
}

// text is what is printed when there is nothing to do.
func (d schemaDeeds) text() string {
	if d.triggers {
		return activityd.Triggers
	}
	return activityd.Schema
}

// do changes the database and says what is there now.
func (d schemaDeeds) do(cmd *cobra.Command, c *config) error {
	db, err := openMySQL(c)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // every statement's own error was looked at
	what, said, err := d.change(cmd, db)
	if err != nil {
		return contacts.Translate(cmd.Context(), what, err)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
	return err
}

// change does what the deeds say, and returns what it tried and what it did.
func (d schemaDeeds) change(cmd *cobra.Command, db *sql.DB) (what, said string, err error) {
	switch {
	case d.remove:
		n, err := schema.RemoveTriggers(cmd.Context(), db)
		return "remove the triggers", "removed " + plural.Of(n, "trigger", "triggers"), err
	case d.triggers:
		n, err := schema.InstallTriggers(cmd.Context(), db)
		return "install the triggers", fmt.Sprintf("the %d triggers are installed", n), err
	}
	err = schema.Apply(cmd.Context(), db)
	return "apply the schema", fmt.Sprintf("the %d tables are there", len(schema.Statements())), err
}
