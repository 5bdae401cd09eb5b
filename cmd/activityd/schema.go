package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/plural"
	"github.com/activityd/activityd/internal/schema"
)

// schemaDeeds say what to do with the schema, or with the triggers.
type schemaDeeds struct{ triggers, apply, check, remove bool }

func newSchema() *cobra.Command {
	c, deeds := &config{}, schemaDeeds{}
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print, create or check the tables that activityd uses, or the triggers that spare a site any change of its code",
		Long: "Print the tables that activityd uses, create those that are missing (--apply), or only say what\n" +
			"is wrong with those that are there (--check): columns, types, keys. Both take views for the\n" +
			"site's four tables, too. A finding is wrong when tasks or answers would be, and a warning when\n" +
			"something is slow, or cannot be seen; below it is what mends it. serve does not start on tables that are wrong.\n\n" +
			"With --triggers: print, install (--apply) or remove (--remove) the optional triggers that\n" +
			"keep users.last_upload and insert the tasks, so that the site itself need not do so. They\n" +
			"run with the rights of the user of --mysql-dsn who installed them. For a moment the tables\n" +
			"are locked; that is given up after 5 s of waiting. docs/adoption.md tells the rest.\n\n" +
			"Exit codes: 0 it is done, and nothing is wrong; 2 tables are wrong; 1 it failed, or could not be\n" +
			"found out.",
		Example: "  activityd schema --apply\n  activityd schema --check\n  activityd schema --triggers --apply\n  activityd schema --triggers | mysql site",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := deeds.refuse(); err != nil {
				return err
			}
			if !deeds.apply && !deeds.remove && !deeds.check {
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
	f.BoolVar(&deeds.apply, "apply", false, "create the tables that are missing in --mysql-dsn, those that exist are left as they are; then check all; or install the triggers")
	f.BoolVar(&deeds.check, "check", false, "say what is wrong with the tables and views in --mysql-dsn; change nothing")
	f.BoolVar(&deeds.remove, "remove", false, "remove the triggers")
	asDeeds(f, "triggers", "apply", "check", "remove")
	c.mysqlFlags(f)
	return cmd
}

// refuse returns an error for deeds that do not go together.
func (d schemaDeeds) refuse() error {
	switch {
	case d.check && d.triggers:
		return errors.New("--check is for the tables, not for the triggers: leave out --triggers")
	case d.check && (d.apply || d.remove):
		return errors.New("--check stands alone: --apply checks, too")
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
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	switch {
	case d.remove:
		n, err := schema.RemoveTriggers(ctx, db)
		if err == nil {
			_, err = fmt.Fprintln(out, "removed "+plural.Of(n, "trigger", "triggers"))
		}
		return mysql.Translate(ctx, "remove the triggers", err)
	case d.triggers:
		n, err := schema.InstallTriggers(ctx, db)
		if err == nil {
			_, err = fmt.Fprintf(out, "the %d triggers are installed\n", n)
		}
		return mysql.Translate(ctx, "install the triggers", err)
	case d.apply:
		if err := schema.Apply(ctx, db); err != nil {
			return mysql.Translate(ctx, "apply the schema", err)
		}
	}
	findings, err := checkSchema(ctx, db)
	wrong, isWrong := errors.AsType[*schemaError](err)
	if err != nil && !isWrong {
		return err
	}
	text := findingsText(findings)
	if n := len(schema.Statements()); len(findings) == 0 {
		text = fmt.Sprintf("the %d tables are there, and nothing is wrong with them\n", n)
	} else if !isWrong {
		text += fmt.Sprintf("the %d tables are there and can be used, with %s\n", n, plural.Of(len(findings), "warning", "warnings"))
	}
	if _, err := fmt.Fprint(out, text); err != nil || !isWrong {
		return err
	}
	return &exitError{exitWrong, errors.New(wrong.summary())}
}

// checkSchema returns all that is to be said about the tables. The error is a
// *[schemaError] if something is wrong; otherwise it could not be found out. A server
// that does not answer within 5 s is away.
func checkSchema(ctx context.Context, db *sql.DB) ([]schema.Finding, error) {
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	findings, err := schema.Check(bounded, db)
	switch {
	case err != nil && ctx.Err() == nil && bounded.Err() != nil:
		return nil, fmt.Errorf("check the schema: %w: no answer within 5 s", mysql.ErrUnavailable)
	case err != nil:
		return nil, mysql.Translate(ctx, "check the schema", err)
	}
	n := 0
	for n < len(findings) && findings[n].Wrong {
		n++
	}
	if n > 0 {
		return findings, &schemaError{findings[:n]}
	}
	return findings, nil
}

// schemaError says that nothing can work on the tables as they are.
type schemaError struct{ wrong []schema.Finding }

func (e *schemaError) Error() string {
	return e.summary() + "\n" + strings.TrimSuffix(findingsText(e.wrong), "\n")
}

func (e *schemaError) summary() string {
	return plural.Of(len(e.wrong), "thing is", "things are") +
		" wrong in the schema; where tables of these names are the site's own, they stay, and views take their place in a database beside it: docs/adoption.md"
}

// findingsText has a line for each finding, and below it what mends it.
func findingsText(findings []schema.Finding) string {
	var text strings.Builder
	for _, f := range findings {
		class := "warning"
		if f.Wrong {
			class = "wrong"
		}
		fmt.Fprintf(&text, "%-7s  %s: %s\n         %s\n", class, f.Table, oneLine(f.What), oneLine(f.Do))
	}
	return text.String()
}
