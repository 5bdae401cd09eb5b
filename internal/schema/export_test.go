package schema

import (
	"context"
	"database/sql"
	"errors"
	"slices"
)

// TableStatements returns the statements of a file that make tables.
func TableStatements(text string) (list []string) {
	for _, t := range tablesOf(text) {
		list = append(list, t.statement)
	}
	return list
}

// TriggerStatements returns the statements of triggers.sql that make triggers.
func TriggerStatements() (list []string) {
	for _, t := range StandardTriggers().List {
		list = append(list, t.Statement())
	}
	return list
}

// Program is one that knows more migrations than this one.
type Program struct{ h history }

// Next returns a program that knows one step more.
func (p Program) Next(since int, statement string) Program {
	return Program{append(slices.Clip(p.h), migration{since: since, statement: statement})}
}

// ThisProgram is the one that is tested.
func ThisProgram() Program { return Program{migrations} }

// Version is the version that a program needs.
func (p Program) Version() int { return p.h.version() }

// Since is the oldest version whose programs work beside this one.
func (p Program) Since() int {
	if len(p.h) == 0 {
		return 1
	}
	return p.h[len(p.h)-1].since
}

// Apply is [Apply], or [ApplyOffline].
func (p Program) Apply(ctx context.Context, db *sql.DB, offline bool) error {
	return p.h.apply(ctx, db, offline)
}

// Check is [Check].
func (p Program) Check(ctx context.Context, db *sql.DB) ([]Finding, error) {
	return p.h.check(ctx, db)
}

// Compatible is [Compatible].
func (p Program) Compatible(ctx context.Context, db *sql.DB) error {
	is, err := versionIn(ctx, db)
	if err != nil {
		return err
	}
	if misfit := p.h.misfit(is); misfit != nil {
		return errors.New(misfit.String())
	}
	return nil
}

// Statements returns what the program runs to migrate from this program's version.
func (p Program) Statements() (list []string) {
	for i, m := range p.h[len(migrations):] {
		is := version{number: base + len(migrations) + 1 + i, since: m.since}
		list = append(list, m.statement, is.record())
	}
	return list
}

// Migrations returns the statements of the migrations.
func Migrations() (list []string) {
	for _, m := range migrations {
		list = append(list, m.statement)
	}
	return list
}

// ParkTasks is parkTasks.
func ParkTasks(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return parkTasks(ctx, conn)
}
