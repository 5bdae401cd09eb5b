package servertest

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/activityd/activityd/internal/mysql"
)

// Process is a connection to a server, and its statement.
type Process struct {
	ID       uint64
	User     string
	Database string // empty: none
	Command  string
	State    string
	Info     string // its statement; empty: none
}

// Processes returns the other connections that use the database of q, which is a
// connection or a pool of connections. A connection that asks the same is left out.
func Processes(ctx context.Context, q mysql.Querier) ([]Process, error) {
	database, err := rowsOf(ctx, q, "SELECT DATABASE() AS name")
	if err != nil {
		return nil, err
	}
	list, err := processes(ctx, q)
	return slices.DeleteFunc(list, func(p Process) bool { return p.Database != database[0]["name"] }), err
}

// processes returns the connections of all users to all databases.
//
// It does not query information_schema.processlist: MySQL 9.7 may answer such a query with
// error 3854, "Cannot convert string", as the statement of another connection has binary text.
func processes(ctx context.Context, q mysql.Querier) (list []Process, err error) {
	const query = "SHOW FULL PROCESSLIST"
	rows, err := rowsOf(ctx, q, query)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		id, err := strconv.ParseUint(row["Id"], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", query, err)
		}
		if row["Info"] != query {
			list = append(list, Process{id, row["User"], row["db"], row["Command"], row["State"], row["Info"]})
		}
	}
	return list, nil
}
