package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/mapping"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/queue"
)

// schemaOptions are the flags of the command schema.
type schemaOptions struct {
	triggers, apply, check, remove bool
	mapFile, only                  string
}

func newSchema() *cobra.Command {
	c, o := &config{}, schemaOptions{}
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print, create or check the tables that activityd uses, or the triggers that spare a site any change of its code",
		Long: "Print the tables that activityd uses; create those that are missing (--apply); or only say what\n" +
			"is wrong with those that are there (--check): version, columns, types, keys. Views may take the\n" +
			"place of the site's four tables. A finding is wrong when tasks or answers would be, and a warning\n" +
			"when something is slow, or cannot be seen; below it is what mends it. serve does not start on\n" +
			"tables that are wrong. Tables of another version are not changed.\n\n" +
			"With --triggers: print, install (--apply) or remove (--remove) the optional triggers that\n" +
			"keep users.last_upload and insert the tasks, so that the site itself need not do so. They\n" +
			"run with the rights of the user of --mysql-dsn who installed them. docs/setup.md says more.\n" +
			"Tables are locked for a moment; --apply gives up after 5 s of waiting for that.\n\n" +
			"With --map: the file describes a site whose tables have names, types and conditions of their own.\n" +
			"Print, or make (--apply), the views that it makes of them, in its database, which is made, too;\n" +
			"with --triggers, the triggers on the site's tables. --check compares both with the file.\n" +
			"examples/site has such a file.\n\n" +
			"With --only queue: the tables of the queue, for a program of your own that uses package queue.\n\n" +
			"Exit codes: 0 it is done, and nothing is wrong; 2 tables are wrong; 1 it failed, or could not be\n" +
			"found out.",
		Example: "  activityd schema --apply\n  activityd schema --check\n  activityd schema --triggers --apply\n  activityd schema --triggers | mysql site\n  activityd schema --check --map site.map",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.refuse(); err != nil {
				return err
			}
			var site *mapping.Map
			if o.mapFile != "" {
				var err error
				if site, err = mapping.Read(o.mapFile); err != nil {
					return err
				}
			}
			if !o.apply && !o.remove && !o.check {
				return o.print(cmd.OutOrStdout(), site)
			}
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			return o.do(cmd, c, site)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.triggers, "triggers", false, "the triggers instead of the tables")
	f.BoolVar(&o.apply, "apply", false, "create the tables that are missing in --mysql-dsn, and check all; or install the triggers")
	f.BoolVar(&o.check, "check", false, "say what is wrong with the tables and views in --mysql-dsn; change nothing")
	f.BoolVar(&o.remove, "remove", false, "remove the triggers")
	f.StringVar(&o.only, "only", "", "queue: only its tables")
	f.StringVar(&o.mapFile, "map", "", "`file` that describes the site's tables, where they are others than activityd's")
	c.mysqlFlags(f)
	return cmd
}

// refuse returns an error for flags that exclude each other.
func (o schemaOptions) refuse() error {
	switch {
	case o.only != "" && (o.only != "queue" || o.triggers || o.check || o.mapFile != ""):
		return errors.New("--only: want --only queue, alone or with --apply")
	case o.check && (o.triggers || o.apply || o.remove):
		return errors.New("--check is given alone, as --apply checks, too; it is for the tables: leave out --triggers")
	case o.remove && (!o.triggers || o.apply):
		return errors.New("--remove is for triggers alone, without --apply: want --triggers --remove; tables are not removed by this program")
	}
	return nil
}

// print prints the tables, or the triggers; for a site with tables of its own, the statements that build on them.
func (o schemaOptions) print(out io.Writer, site *mapping.Map) error {
	text := activityd.Schema
	switch {
	case site != nil && o.triggers:
		return site.PrintTriggers(out)
	case site != nil:
		return site.PrintViews(out)
	case o.triggers:
		text = activityd.Triggers
	case o.only != "":
		text = queue.Schema
	}
	_, err := fmt.Fprint(out, text)
	return err
}

// do changes the database and reports its state.
func (o schemaOptions) do(cmd *cobra.Command, c *config, site *mapping.Map) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	if site != nil && o.apply {
		if err := mysql.CreateDatabase(ctx, c.mysqlDSN); err != nil {
			return mysql.Translate(ctx, "make the database", err)
		}
	}
	db, err := openMySQL(c, c.mysqlConnections)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // every statement's own error was looked at
	switch {
	case o.only != "":
		if err := queue.Migrate(ctx, db); err != nil {
			return err
		}
		_, err := fmt.Fprintln(out, "the tables of the queue are there")
		return err
	case o.remove:
		n, err := triggersOf(site).Remove(ctx, db)
		if err == nil {
			_, err = fmt.Fprintf(out, "removed %d triggers\n", n)
		}
		return mysql.Translate(ctx, "remove the triggers", err)
	case o.triggers:
		if err := o.install(ctx, out, db, site); err != nil {
			return err
		}
		return o.report(ctx, out, db, site, nil)
	case o.apply:
		if err := o.install(ctx, out, db, site); err != nil {
			return err
		}
	}
	findings, err := checkSchema(ctx, db, nil)
	if err != nil && !isSchemaError(err) {
		return err
	}
	return o.report(ctx, out, db, site, findings)
}

// install makes the triggers; or the views of a site with tables of its own, and then the tables that are missing.
func (o schemaOptions) install(ctx context.Context, out io.Writer, db *sql.DB, site *mapping.Map) (err error) {
	switch triggers := triggersOf(site); {
	case o.triggers:
		if site != nil {
			err = site.Fits(ctx, db)
		}
		if err == nil {
			err = triggers.Install(ctx, db)
		}
		if err == nil {
			_, err = fmt.Fprintf(out, "the %d triggers are installed\n", len(triggers.List))
		}
		return mysql.Translate(ctx, "install the triggers", err)
	case site != nil:
		err = site.Apply(ctx, db)
	}
	if err == nil {
		err = schema.Apply(ctx, db)
	}
	return mysql.Translate(ctx, "apply the schema", err)
}

// triggersOf returns the triggers of a site.
func triggersOf(site *mapping.Map) schema.Triggers {
	if site == nil {
		return schema.StandardTriggers()
	}
	return site.Triggers()
}

// report prints the findings. For a site with a file, it adds the findings about the file. After the installation of
// the triggers, it looks only for the file's findings.
func (o schemaOptions) report(ctx context.Context, out io.Writer, db *sql.DB, site *mapping.Map, findings []schema.Finding) error {
	if site != nil {
		bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		more, err := mapping.Check(bounded, db, site)
		if err != nil {
			return mysql.Translate(ctx, "check the site's tables", err)
		}
		remedy := strings.NewReplacer(schema.WithMap, "", "--map FILE", "--map "+o.mapFile, "schema --apply", "schema --apply --map "+o.mapFile)
		for i := range findings {
			findings[i].Do = remedy.Replace(findings[i].Do)
		}
		findings = slices.Concat(findings, more)
	}
	findings = schema.WrongFirst(findings)
	wrong := wrongOf(findings)
	text := findingsText(findings)
	switch {
	case o.triggers: // the command has reported it
	case len(findings) == 0:
		text = "all tables are there, and nothing is wrong with them\n"
	case len(wrong) == 0:
		text += fmt.Sprintf("all tables are there and can be used, with %s\n", count(len(findings), "warning"))
	}
	if _, err := fmt.Fprint(out, text); err != nil || len(wrong) == 0 {
		return err
	}
	return &exitError{exitWrong, errors.New((&schemaError{wrong}).summary())}
}

// checkSchema returns the findings about the tables, errors first. A wrong table makes the error a *[schemaError]. Any
// other error means that the check could not be made, and is reported to server, unless that is nil. A server that does
// not answer within 5 s is away.
func checkSchema(ctx context.Context, db *sql.DB, server *outage.Log) ([]schema.Finding, error) {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	findings, err := schema.Check(bounded, db)
	switch {
	case err != nil && ctx.Err() == nil && bounded.Err() != nil:
		err = fmt.Errorf("check the schema: %w: no answer within 5 s", mysql.ErrUnavailable)
	case err != nil:
		err = mysql.Translate(ctx, "check the schema", err)
	}
	if err != nil {
		if server != nil && ctx.Err() == nil {
			server.Report(ctx, began, err)
		}
		return nil, err
	}
	if wrong := wrongOf(findings); len(wrong) > 0 {
		return findings, &schemaError{wrong}
	}
	return findings, nil
}

// wrongOf returns the first of the findings, those that are wrong.
func wrongOf(findings []schema.Finding) []schema.Finding {
	if at := slices.IndexFunc(findings, func(f schema.Finding) bool { return !f.Wrong }); at >= 0 {
		return findings[:at]
	}
	return findings
}

// schemaError says that nothing can work on the tables as they are.
type schemaError struct{ wrong []schema.Finding }

func isSchemaError(err error) bool {
	_, is := errors.AsType[*schemaError](err)
	return is
}

func (e *schemaError) Error() string {
	return e.summary() + "\n" + strings.TrimSuffix(findingsText(e.wrong), "\n")
}

func (e *schemaError) summary() string {
	are := map[bool]string{true: "is", false: "are"}[len(e.wrong) == 1]
	return fmt.Sprintf("%s %s wrong in the schema; where tables of these names are the site's own, they stay, and views take their place in a database beside it: docs/setup.md", count(len(e.wrong), "thing"), are)
}

// count is a number of things, in words.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// findingsText has a line for each finding, and its remedy below it.
func findingsText(findings []schema.Finding) string {
	var text strings.Builder
	for _, f := range findings {
		class := "warning"
		if f.Wrong {
			class = "wrong"
		}
		fmt.Fprintf(&text, "%-7s  %s: %s\n         %s\n", class, f.Table, inspect.OneLine(f.What), inspect.OneLine(f.Do))
	}
	return text.String()
}
