package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
)

// planView is the page of the statements and their plans, ready to print.
type planView struct {
	Viewer  memberView
	SQL     bool   // there is a database to ask
	Problem string // instead of all below
	Plain   []askedView
	Ours    []askedView
	Walked  string // why, "": the answer is by the index
}

// askedView is a statement, and what it costs the server.
type askedView struct {
	Why, Text string
	Read      string // how much was read for it; "": not known
	Rows      []planRow
	Problem   string // instead of Read and Rows
}

// planRow is a row of EXPLAIN.
type planRow struct {
	Table, Access, Key, Rows, Extra string
}

// planTimeout bounds the statements of a page.
const planTimeout = 20 * time.Second

// planPage serves the statements of all ways for the viewer in the query, and what the
// database says of them.
func (d *Demo) planPage(w http.ResponseWriter, r *http.Request) {
	viewer, err := member.Parse(r.URL.Query().Get("viewer"))
	if err != nil {
		http.Error(w, "viewer: "+err.Error(), http.StatusBadRequest)
		return
	}
	view := planView{Viewer: d.memberView(viewer), SQL: d.cfg.DB != nil}
	ctx, cancel := context.WithTimeout(r.Context(), planTimeout)
	defer cancel()
	v := contacts.Viewer{ID: viewer}
	answer, _, err := d.read(ctx, v)
	if err != nil {
		var status int
		view.Problem, status = d.problem(ctx, viewer, err)
		d.render(w, r, "plan", status, view)
		return
	}
	for _, way := range plainWays {
		view.Plain = append(view.Plain, d.explained(ctx, way.why, plainStatement(way.text, v, photosShown)))
	}
	view.Walked = walkedBecause(answer.Trace.WalkReason)
	view.Ours = d.asked(ctx, v, answer)
	d.render(w, r, "plan", http.StatusOK, view)
}

// asked returns what a read asked, of Redis and of the database.
func (d *Demo) asked(ctx context.Context, v contacts.Viewer, a recent.Answer) []askedView {
	ids := make([]member.ID, len(a.Trace.Candidates))
	for i, c := range a.Trace.Candidates {
		ids[i] = c.Contact
	}
	views := []askedView{{
		Why: "Redis says where to look", Text: "ZREVRANGE user_" + v.ID.String() + " 0 -1 WITHSCORES",
		Read: fmt.Sprintf("%d candidates", len(ids)),
	}}
	for _, step := range a.Trace.Steps {
		switch {
		case step.Name == "first" && len(ids) > 0:
			views = append(views, d.explained(ctx, "MySQL decides what may be seen of the first", contacts.VisiblePhotosStatement(v, ids[0], photosShown)))
		case step.Name == "others" && len(ids) > 0:
			views = append(views, d.explained(ctx, "All candidates are compared at one instant", contacts.StandingsStatement(v, ids)))
		case step.Name == "winner" && a.Contact != nil:
			views = append(views, d.explained(ctx, "The photos of the best of them", contacts.VisiblePhotosStatement(v, a.Contact.ID, photosShown)))
		}
	}
	return views
}

// explained runs a statement, and asks the server what it read and how.
func (d *Demo) explained(ctx context.Context, why string, s contacts.Statement) askedView {
	view := askedView{Why: why, Text: strings.TrimSpace(filledIn(s))}
	if d.cfg.DB == nil {
		return view
	}
	read, rows, err := explain(ctx, d.cfg.DB, s)
	if err != nil {
		if !errors.Is(err, mysql.ErrUnavailable) && ctx.Err() == nil && !d.anyOff() {
			d.cfg.Log.WarnContext(ctx, "demo: statement could not be explained", slog.Any("error", err))
		}
		view.Problem = "The server could not be asked now."
		return view
	}
	view.Read, view.Rows = thousands(read)+" rows and index entries read", rows
	return view
}

// filledIn returns the text of a statement with its arguments, which are numbers and lists
// of numbers.
func filledIn(s contacts.Statement) string {
	parts := strings.Split(s.Text, "?")
	var b strings.Builder
	for i, part := range parts {
		b.WriteString(part)
		if i == len(parts)-1 {
			break
		}
		if text, ok := s.Args[i].(string); ok {
			fmt.Fprintf(&b, "'%s'", text)
		} else {
			fmt.Fprintf(&b, "%d", s.Args[i])
		}
	}
	return b.String()
}

// explain returns how many rows and index entries a statement reads, and its plan.
func explain(ctx context.Context, db *sql.DB, s contacts.Statement) (read int, plan []planRow, err error) {
	conn, err := db.Conn(ctx) // whose session counts
	if err != nil {
		return 0, nil, mysql.Translate(ctx, "explaining a statement", err)
	}
	defer func() { _ = conn.Close() }() // it goes back to the pool
	var counts [3]int
	for i := range counts {
		if i == 2 { // the first two count what the counting itself reads
			if _, err := rowsOf(ctx, conn, s.Text, s.Args...); err != nil {
				return 0, nil, err
			}
		}
		if counts[i], err = rowsRead(ctx, conn); err != nil {
			return 0, nil, err
		}
	}
	// MySQL 9 has another default format.
	rows, err := rowsOf(ctx, conn, "EXPLAIN FORMAT=TRADITIONAL "+strings.TrimSpace(s.Text), s.Args...)
	if err != nil {
		return 0, nil, err
	}
	for _, row := range rows {
		plan = append(plan, planRow{row["table"], row["type"], row["key"], row["rows"], row["extra"]})
	}
	return max(0, counts[2]-counts[1]-(counts[1]-counts[0])), plan, nil
}

// rowsRead returns how many rows and index entries the connection has read.
func rowsRead(ctx context.Context, conn *sql.Conn) (sum int, err error) {
	rows, err := rowsOf(ctx, conn, "SHOW SESSION STATUS LIKE 'Handler_read%'")
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		n, err := strconv.Atoi(row["value"])
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// rowsOf returns the rows of a query, as [mysql.ByName] has them.
func rowsOf(ctx context.Context, conn *sql.Conn, text string, args ...any) ([]map[string]string, error) {
	list, err := mysql.Select(ctx, conn, mysql.ByName, text, args...)
	return list, mysql.Translate(ctx, "explaining a statement", err)
}

// walkedBecause says why an answer needed a walk, for people; "": it did not.
func walkedBecause(reason string) string {
	switch reason {
	case "":
		return ""
	case recent.RedisUnavailable:
		return "Redis is away"
	case recent.SetMissing:
		return "the set was missing"
	case recent.SetUnknown:
		return "the set may be old"
	case recent.WritesRefused:
		return "Redis is not ready yet"
	default:
		return strings.ReplaceAll(reason, "_", " ")
	}
}
