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
	"github.com/activityd/activityd/internal/mapping"
	"github.com/activityd/activityd/internal/mysql"
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
		Long: "Print the tables that activityd uses; create those that are missing; or say what is wrong with those that\n" +
			"are there, and what mends it. With --triggers: print, install or remove the optional triggers, which keep\n" +
			"users.last_upload and insert the tasks. With --map: the views, and with --triggers the triggers, for a site\n" +
			"whose tables have names, types and conditions of their own. docs/setup.md says more.\n" +
			"Exit codes: 0 nothing is wrong; 2 tables are wrong; 1 it failed, or could not be found out.",
		Example: "  activityd schema --apply\n  activityd schema --check\n  activityd schema --triggers | mysql site\n  activityd schema --check --map site.map",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := o.refuse(); err != nil {
				return err
			}
			var site *mapping.Map
			if o.mapFile != "" {
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
			return o.do(cmd.Context(), cmd.OutOrStdout(), c, site)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.triggers, "triggers", false, "the triggers instead of the tables")
	f.BoolVar(&o.apply, "apply", false, "create the tables that are missing in --mysql-dsn, and check all; or install the triggers")
	f.BoolVar(&o.check, "check", false, "say what is wrong with the tables and views in --mysql-dsn; change nothing")
	f.BoolVar(&o.remove, "remove", false, "remove the triggers")
	f.StringVar(&o.only, "only", "", "queue: only its tables, for a program of your own with package queue")
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
func (o schemaOptions) do(ctx context.Context, out io.Writer, c *config, site *mapping.Map) error {
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
	triggers := schema.StandardTriggers()
	if site != nil {
		triggers = site.Triggers()
	}
	var findings []schema.Finding
	done, what := "", "apply the schema"
	switch {
	case o.only != "":
		what, done = "make the tables of the queue", "the tables of the queue are there"
		err = queue.Migrate(ctx, db)
	case o.remove:
		what = "remove the triggers"
		var n int
		n, err = triggers.Remove(ctx, db)
		done = fmt.Sprintf("removed %d triggers", n)
	case o.triggers:
		what, done = "install the triggers", fmt.Sprintf("the %d triggers are installed", len(triggers.List))
		if site != nil {
			err = site.Fits(ctx, db)
		}
		if err == nil {
			err = triggers.Install(ctx, db)
		}
	case o.apply:
		err = applyTables(ctx, db, site)
	}
	if err != nil {
		return mysql.Translate(ctx, what, err)
	}
	if done == "" {
		if findings, err = checkSchema(ctx, db); err != nil && !isSchemaError(err) {
			return err
		}
	} else if sayf(out, "%s", done); site == nil || o.remove {
		return nil
	}
	return o.report(ctx, out, db, site, findings)
}

// applyTables makes the views of a site with a file, and the tables.
func applyTables(ctx context.Context, db *sql.DB, site *mapping.Map) error {
	if site != nil {
		if err := site.Apply(ctx, db); err != nil {
			return err
		}
	}
	return schema.Apply(ctx, db)
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
	wrong, text := wrongOf(findings), findingsText(findings)
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
