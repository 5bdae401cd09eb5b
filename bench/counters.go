package main

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// counts are what the servers did. They do not depend on how busy the machine is.
type counts struct {
	Statements float64 `json:"mysql_statements"`
	RowsRead   float64 `json:"mysql_rows_read"` // rows and index entries: Handler_read_*
	MySQLBytes float64 `json:"mysql_bytes"`     // received and sent
	Redo       float64 `json:"mysql_redo_bytes,omitzero"`
	Pages      float64 `json:"mysql_pages_read,omitzero"` // requests to the buffer pool
	Commands   float64 `json:"redis_commands"`            // those of scripts included
	RedisBytes float64 `json:"redis_bytes"`
	RedisTrips float64 `json:"redis_round_trips"` // of the clients of the benchmark itself, not of asynq's or the program's
}

// plus adds d times f.
func (c counts) plus(d counts, f float64) counts {
	return counts{
		c.Statements + f*d.Statements, c.RowsRead + f*d.RowsRead, c.MySQLBytes + f*d.MySQLBytes, c.Redo + f*d.Redo, c.Pages + f*d.Pages,
		c.Commands + f*d.Commands, c.RedisBytes + f*d.RedisBytes, c.RedisTrips + f*d.RedisTrips,
	}
}

// meter reads counters and processor times.
type meter struct {
	backend *backend
	servers []*redis.Client // of Redis
	account accountant
	trips   *tripCounter
	own     counts // what reading the counters adds to them
}

// newMeter makes a meter of the database of a backend and some servers of Redis.
func newMeter(ctx context.Context, b *backend, servers ...*redis.Client) (m *meter, err error) {
	m = &meter{backend: b, servers: servers, trips: &tripCounter{}}
	if m.account, err = newAccountant(ctx, b, servers); err != nil {
		return nil, err
	}
	for _, server := range servers {
		server.AddHook(m.trips)
	}
	err = m.calibrate(ctx)
	return m, err
}

// calibrate measures what reading the counters adds to them. It grows with the kinds of
// commands that Redis has seen.
func (m *meter) calibrate(ctx context.Context) (err error) {
	for range 2 { // the first reading costs more than the next ones
		m.own = counts{}
		if m.own, err = m.counted(ctx, func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// counted returns the counts of what happened while do ran.
func (m *meter) counted(ctx context.Context, do func() error) (counts, error) {
	before, err := m.read(ctx)
	if err != nil {
		return counts{}, err
	}
	if err := do(); err != nil {
		return counts{}, err
	}
	after, err := m.read(ctx)
	return after.plus(before, -1).plus(m.own, -1), err
}

func (m *meter) read(ctx context.Context) (c counts, err error) {
	status, err := statusOf(ctx, m.backend.db, "GLOBAL")
	if err != nil {
		return c, err
	}
	c.Statements, c.RowsRead = status["Questions"], rowsIn(status)
	c.MySQLBytes = status["Bytes_received"] + status["Bytes_sent"]
	c.Redo = status["Innodb_lsn_current"] + status["Innodb_redo_log_current_lsn"] // of MariaDB, of MySQL
	c.Pages = status["Innodb_buffer_pool_read_requests"]
	c.RedisTrips = float64(m.trips.n.Load())
	for _, server := range m.servers {
		for _, section := range []string{"stats", "commandstats"} {
			text, err := server.Info(ctx, section).Result()
			if err != nil {
				return c, err
			}
			c = c.plus(ofRedis(text), 1)
		}
	}
	return c, nil
}

// ofRedis returns the counts in a section of INFO.
func ofRedis(text string) (c counts) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "total_net_input_bytes", name == "total_net_output_bytes":
			n, _ := strconv.ParseFloat(value, 64)
			c.RedisBytes += n
		case strings.HasPrefix(name, "cmdstat_"):
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, _ := strconv.ParseFloat(calls, 64)
			c.Commands += n
		}
	}
	return c
}

// statusOf returns the counters of a scope: GLOBAL, or SESSION for those of the only
// connection of db.
func statusOf(ctx context.Context, db *sql.DB, scope string) (map[string]float64, error) {
	rows, err := db.QueryContext(ctx, "SHOW "+scope+" STATUS WHERE Variable_name LIKE 'Handler\\_read\\_%'"+
		" OR Variable_name IN ('Questions', 'Bytes_received', 'Bytes_sent',"+
		" 'Innodb_lsn_current', 'Innodb_redo_log_current_lsn', 'Innodb_buffer_pool_read_requests')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	status := make(map[string]float64)
	for rows.Next() {
		var name string
		var n float64
		if err := rows.Scan(&name, &n); err != nil {
			return nil, err
		}
		status[name] = n
	}
	return status, rows.Err()
}

// rowsIn returns how many rows and index entries were read.
func rowsIn(status map[string]float64) (sum float64) {
	for name, n := range status {
		if strings.HasPrefix(name, "Handler_read_") {
			sum += n
		}
	}
	return sum
}

// each returns the counts of one operation of n.
func (c counts) each(n int) counts { return counts{}.plus(c, 1/float64(n)) }
