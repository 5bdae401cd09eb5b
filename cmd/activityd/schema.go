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
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/settings"
)

// schemaOptions are the flags of the command schema.
type schemaOptions struct{ triggers, apply, offline, check, remove bool }

func newSchema() *cobra.Command {
	c, o := &config{}, schemaOptions{}
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print, create, migrate or check the tables that activityd uses, or the triggers that spare a site any change of its code",
		Long: "Print the tables that activityd uses; create those that are missing, and migrate its own from an\n" +
			"earlier version (--apply); or only say what is wrong with those that are there (--check): version,\n" +
			"columns, types, keys. Views may take the place of the site's four tables. A finding is wrong when\n" +
			"tasks or answers would be, and a warning when something is slow, or cannot be seen, or the\n" +
			"triggers are of another version; below it is what mends it. serve does not start on tables\n" +
			"that are wrong.\n\n" +
			"Processes of the version that is there may work while --apply migrates. It refuses to skip a version\n" +
			"that they could not bear: --offline says that none runs.\n\n" +
			"With --triggers: print, install (--apply) or remove (--remove) the optional triggers that\n" +
			"keep users.last_upload and insert the tasks, so that the site itself need not do so. They\n" +
			"run with the rights of the user of --mysql-dsn who installed them. docs/adoption.md says more.\n\n" +
			"With --queue-dsn each of the two databases has its own tables: the queue's are tasks,\n" +
			"paused_queues and task_keys. Triggers can reach it on the server of --mysql-dsn only.\n\n" +
			"Tables are locked for a moment; --apply gives up after 5 s of waiting for that.\n\n" +
			"Exit codes: 0 it is done, and nothing is wrong; 2 tables are wrong; 1 it failed, or could not be\n" +
			"found out.",
		Example: "  activityd schema --apply\n  activityd schema --check\n  activityd schema --triggers --apply\n  activityd schema --triggers | mysql site",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.refuse(); err != nil {
				return err
			}
			if !o.apply && !o.remove && !o.check {
				return o.print(cmd.OutOrStdout(), c)
			}
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			return o.do(cmd, c)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.triggers, "triggers", false, "the triggers instead of the tables")
	f.BoolVar(&o.apply, "apply", false, "create the tables that are missing in --mysql-dsn, and --queue-dsn, migrate activityd's own, and check all; or install the triggers")
	f.BoolVar(&o.offline, "offline", false, "with --apply: no process of activityd runs, so take steps that it could not bear, too")
	f.BoolVar(&o.check, "check", false, "say what is wrong with the tables and views in --mysql-dsn, and --queue-dsn; change nothing")
	f.BoolVar(&o.remove, "remove", false, "remove the triggers")
	c.mysqlFlags(f)
	return cmd
}

// refuse returns an error for flags that exclude each other.
func (o schemaOptions) refuse() error {
	switch {
	case o.check && o.triggers:
		return errors.New("--check is for the tables, not for the triggers: leave out --triggers")
	case o.check && (o.apply || o.remove):
		return errors.New("--check is given alone: --apply checks, too")
	case o.remove && !o.triggers:
		return errors.New("--remove is for triggers alone: want --triggers --remove; tables are not removed by this program")
	case o.offline && (!o.apply || o.triggers):
		return errors.New("--offline is for migrations: want --apply --offline")
	case o.remove && o.apply:
		return errors.New("--apply and --remove exclude each other")
	}
	return nil
}

// print prints the tables, or the triggers.
func (o schemaOptions) print(out io.Writer, c *config) error {
	text := activityd.Schema
	if o.triggers {
		queueName := ""
		if c.queueDSN != "" {
			place, err := mysql.Place(c.queueDSN)
			if err != nil {
				return fmt.Errorf("--queue-dsn (%s): %w", settings.Variable("queue-dsn"), err)
			}
			queueName = place[strings.LastIndexByte(place, '/')+1:]
		}
		text = schema.Triggers(queueName)
	}
	_, err := fmt.Fprint(out, text)
	return err
}

// do changes the database and says what is there now.
func (o schemaOptions) do(cmd *cobra.Command, c *config) error {
	db, queueDB, err := openMySQL(c)
	if err != nil {
		return err
	}
	defer func() { _, _ = db.Close(), queueDB.Close() }() // every statement's own error was looked at
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	switch {
	case o.remove:
		n, err := schema.RemoveTriggers(ctx, db)
		if err == nil {
			_, err = fmt.Fprintf(out, "removed %d triggers\n", n)
		}
		return mysql.Translate(ctx, "remove the triggers", err)
	case o.triggers:
		n, err := schema.InstallTriggers(ctx, db, queueDB)
		if err == nil {
			_, err = fmt.Fprintf(out, "the %d triggers are installed\n", n)
		}
		return mysql.Translate(ctx, "install the triggers", err)
	case o.apply:
		if err := o.applyTo(ctx, db, queueDB); err != nil {
			return err
		}
	}
	findings, err := checkSchema(ctx, databases(db, queueDB))
	wrong, isWrong := errors.AsType[*schemaError](err)
	if err != nil && !isWrong {
		return err
	}
	text := findingsText(findings)
	if n := len(schema.Tables()); len(findings) == 0 {
		text = fmt.Sprintf("the %d tables are there, and nothing is wrong with them\n", n)
	} else if !isWrong {
		text += fmt.Sprintf("the %d tables are there and can be used, with %d warnings\n", n, len(findings))
	}
	if _, err := fmt.Fprint(out, text); err != nil || !isWrong {
		return err
	}
	return &exitError{exitWrong, errors.New(wrong.summary())}
}

// applyTo makes and migrates the tables.
func (o schemaOptions) applyTo(ctx context.Context, db, queueDB *sql.DB) error {
	apply := schema.Apply
	if o.offline {
		apply = schema.ApplyOffline
	}
	list := databases(db, queueDB)
	for _, d := range list {
		found, err := d.checkApart(ctx)
		if err == nil && len(found) > 0 {
			return &exitError{exitWrong, &schemaError{found}}
		}
		if err != nil {
			return mysql.Translate(ctx, "compare the databases", err)
		}
	}
	for _, d := range list {
		if err := apply(ctx, d.db, d.of...); err != nil {
			return mysql.Translate(ctx, "apply the schema"+d.flag, err)
		}
	}
	if queueDB == db {
		return nil
	}
	return schema.RaiseTaskIDs(ctx, db, queueDB)
}

// database is one of the databases of a process.
type database struct {
	db     *sql.DB
	flag   string        // names it, after a space; empty: there is no other
	of     []schema.Part // its tables; none: all
	site   *sql.DB       // which the queue's database must not be; nil: there is no other, or it is that
	outage *outage.Log   // gets the end of each check; nil: there is none
}

// databases returns the site's database, and that of the queue if it is another one.
func databases(db, queueDB *sql.DB) []database {
	if queueDB == db {
		return []database{{db: db}}
	}
	return []database{
		{db: db, flag: " --mysql-dsn", of: []schema.Part{schema.Site}},
		{db: queueDB, flag: " --queue-dsn", of: []schema.Part{schema.Queue}, site: db},
	}
}

// check returns the findings about the tables of a database. An error means that the check
// could not be made. A server that does not answer within 5 s is away.
func (d database) check(ctx context.Context) ([]schema.Finding, error) {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	findings, err := schema.Check(bounded, d.db, d.of...)
	for i := range findings {
		findings[i].Table = strings.TrimPrefix(d.flag+" "+findings[i].Table, " ")
	}
	if err == nil {
		var same []schema.Finding
		if same, err = d.checkApart(bounded); len(same) > 0 {
			findings = same
		}
	}
	switch {
	case err != nil && ctx.Err() == nil && bounded.Err() != nil:
		err = fmt.Errorf("check the schema%s: %w: no answer within 5 s", d.flag, mysql.ErrUnavailable)
	case err != nil:
		err = mysql.Translate(ctx, "check the schema"+d.flag, err)
	}
	if err != nil && d.outage != nil && ctx.Err() == nil {
		d.outage.Report(ctx, began, err)
	}
	return findings, err
}

// checkApart returns a finding if the database of the queue is the site's. Other checks would
// take it for a second database, and advise to drop tables.
func (d database) checkApart(ctx context.Context) ([]schema.Finding, error) {
	if d.site == nil {
		return nil, nil
	}
	same, err := schema.SameDatabase(ctx, d.site, d.db)
	if err != nil || !same {
		return nil, err
	}
	return []schema.Finding{{Wrong: true, Table: "--queue-dsn", What: "is the database of --mysql-dsn", Do: "leave --queue-dsn out"}}, nil
}

// oneDatabase reports whether a finding is that of checkApart.
func oneDatabase(f schema.Finding) bool { return f.Table == "--queue-dsn" }

// checkSchema returns the findings about the tables, those that are wrong first. The error is a
// *[schemaError] if there are such; any other means that the check could not be made.
func checkSchema(ctx context.Context, list []database) (findings []schema.Finding, err error) {
	for _, d := range list {
		found, err := d.check(ctx)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(found, oneDatabase) {
			findings = nil // they take it for a second one
		}
		findings = append(findings, found...)
	}
	slices.SortStableFunc(findings, func(a, b schema.Finding) int {
		switch {
		case a.Wrong == b.Wrong:
			return 0
		case a.Wrong:
			return -1
		}
		return 1
	})
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

func isSchemaError(err error) bool {
	_, is := errors.AsType[*schemaError](err)
	return is
}

func (e *schemaError) Error() string {
	return e.summary() + "\n" + strings.TrimSuffix(findingsText(e.wrong), "\n")
}

func (e *schemaError) summary() string {
	return fmt.Sprintf("%d things are wrong in the schema; where tables of these names are the site's own, they stay, and views take their place in a database beside it: docs/adoption.md", len(e.wrong))
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
