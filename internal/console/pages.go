package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/queue"
)

// How much a page shows.
const (
	maxRows   = 50
	maxPages  = 20 // of tasks
	maxGroups = 50
)

// grid is a table as it is shown: the first cells of its rows may be links.
type grid struct {
	ID, Label string
	inspect.Table
	Links []string // by row; "": none
}

// Link returns where the first cell of a row leads.
func (g grid) Link(row int) string {
	if row < len(g.Links) {
		return g.Links[row]
	}
	return ""
}

// Name returns the name of a column, in lower case.
func (g grid) Name(column int) string { return strings.ToLower(g.Head[column]) }

// None reports whether a cell says nothing, so that a narrow page leaves it out.
func (g grid) None(cell string) bool { return cell == "" || cell == "-" || cell == "0" }

// Long reports whether a column has sentences.
func (g grid) Long(column int) bool {
	return slices.Contains([]string{"LAST ERROR", "REASON", "ARGS", "VERDICT"}, g.Head[column])
}

// failureRow is a group of failures, and the links from it.
type failureRow struct {
	inspect.Failures
	List, Retry, Discard string
}

// queueNow is a queue, with a row for each type.
type queueNow struct {
	Name, List string
	Facts      [][2]string
	Paused     bool
	Types      grid
}

// maxFailures bounds the tasks that failed whose errors are grouped.
const maxFailures = 1000

func (c *Console) showQueues(r *http.Request, v *view) error {
	v.Title, v.Page, v.Refresh = "Queues", "queues", r.FormValue("refresh") != ""
	stats, err := c.Queue.Stats(r.Context())
	if err != nil {
		return err
	}
	failed := queue.Filter{States: []queue.State{queue.Dead, queue.Scheduled}, Error: "%"}
	list, partial, err := c.Queue.Search(r.Context(), failed, maxFailures)
	if err != nil {
		return err
	}
	now := inspect.NewQueues(stats, time.Now())
	body := struct {
		Queues        []queueNow
		At            string
		More, Partial bool
		Failures      []failureRow
	}{nil, now.At, now.More, partial || len(list) == maxFailures, nil}
	for _, q := range now.Queues {
		body.Queues = append(body.Queues, newQueueNow(inspect.Queues{Limit: now.Limit, Queues: []inspect.Queue{q}}))
	}
	for _, f := range inspect.GroupFailures(list, maxGroups) {
		q := []string{"queue", f.Queue, "type", f.Kind, "state", string(f.State), "error", f.Pattern}
		f.Error = inspect.Shortened(inspect.OneLine(f.Error), 300)
		body.Failures = append(body.Failures, failureRow{
			f, path("tasks", q...), path("act", append(q, "do", "retry")...), path("act", append(q, "do", "discard")...),
		})
	}
	v.Body = body
	return nil
}

// newQueueNow is for a table of one queue: its first row is of all types.
func newQueueNow(one inspect.Queues) queueNow {
	t := one.Table()
	q := queueNow{Name: one.Queues[0].Queue, List: path("tasks", "queue", one.Queues[0].Queue), Paused: one.Queues[0].Paused}
	types := len(t.Head) - 1 // the last column is of the queue alone
	for i := 2; i < len(t.Head)-1; i++ {
		if cell := t.Rows[0][i]; cell != "-" && cell != "0" {
			q.Facts = append(q.Facts, [2]string{strings.ToLower(t.Head[i]), cell})
		}
	}
	q.Types = grid{ID: "queue-" + q.Name, Label: "Types of " + q.Name, Table: inspect.Table{Head: t.Head[1:types]}}
	for i, row := range t.Rows[1:] {
		q.Types.Rows = append(q.Types.Rows, row[1:types])
		q.Types.Links = append(q.Types.Links, path("tasks", "queue", q.Name, "type", one.Queues[0].Types[i].Type))
	}
	return q
}

// filter reads the filter of a form.
func filter(r *http.Request) (match queue.Filter, err error) {
	get := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	for _, word := range strings.FieldsFunc(get("id"), func(r rune) bool { return r == ' ' || r == ',' }) {
		id, err := strconv.ParseUint(word, 10, 64)
		if err != nil || len(match.IDs) == maxRows {
			return match, fault("ID: want up to 50 numbers")
		}
		match.IDs = append(match.IDs, id)
	}
	if key := get("key"); key != "" {
		if match.Key, err = strconv.ParseUint(key, 10, 64); err != nil {
			match.Key = queue.KeyOf(key)
		}
	}
	for name, list := range map[string]*[]string{"type": &match.Kinds, "queue": &match.Queues} {
		if value := get(name); value != "" {
			*list = []string{value}
		}
	}
	if state := queue.State(get("state")); state != "" {
		if !slices.Contains(queue.States(), state) {
			return match, fault(fmt.Sprintf("state: want one of %v", queue.States()))
		}
		match.States = []queue.State{state}
	}
	match.Error = get("error")
	if len(match.Error) > 1000 {
		return match, fault("error: want at most 1000 bytes")
	}
	return match, nil
}

// narrowed reports whether a filter names more than a state.
func narrowed(f queue.Filter) bool {
	return len(f.IDs)+len(f.Kinds)+len(f.Queues) > 0 || f.Key != 0 || f.Error != ""
}

// asked is a filter as the form has it.
type asked struct {
	ID, Key, Type, Queue, State, Error string
	States                             []queue.State
}

func askedBy(r *http.Request) asked {
	return asked{r.FormValue("id"), r.FormValue("key"), r.FormValue("type"), r.FormValue("queue"), r.FormValue("state"), r.FormValue("error"), queue.States()}
}

// tasksGrid links tasks to their pages.
func tasksGrid(list []queue.Record) grid {
	g := grid{ID: "tasks", Label: "Tasks", Table: inspect.Tasks(list, time.Now())}
	for _, r := range list {
		g.Links = append(g.Links, "/console/tasks/"+strconv.FormatUint(r.ID, 10))
	}
	return g
}

func (c *Console) showTasks(r *http.Request, v *view) error {
	v.Title, v.Page = "Tasks", "tasks"
	match, err := filter(r)
	if err != nil {
		return err
	}
	at, err := strconv.Atoi(cmp.Or(r.FormValue("page"), "1"))
	if err != nil || at < 1 || at > maxPages {
		return fault(fmt.Sprintf("page: want 1 to %d", maxPages))
	}
	list, partial, err := c.Queue.Search(r.Context(), match, at*maxRows+1)
	if err != nil {
		return err
	}
	a := askedBy(r)
	q := []string{"id", a.ID, "key", a.Key, "type", a.Type, "queue", a.Queue, "state", a.State, "error", a.Error}
	body := struct {
		Asked                        asked
		Tasks                        grid
		Partial                      bool
		Limit                        int
		Newer, Older, Retry, Discard string
	}{Asked: a, Tasks: tasksGrid(list[min(len(list), (at-1)*maxRows):min(len(list), at*maxRows)]), Partial: partial, Limit: queue.SearchLimit}
	if at > 1 {
		body.Newer = path("tasks", append(q, "page", strconv.Itoa(at-1))...)
	}
	if len(list) > at*maxRows && at < maxPages {
		body.Older = path("tasks", append(q, "page", strconv.Itoa(at+1))...)
	}
	if narrowed(match) {
		body.Retry, body.Discard = path("act", append(q, "do", "retry")...), path("act", append(q, "do", "discard")...)
	}
	v.Body = body
	return nil
}

func (c *Console) showTask(r *http.Request, v *view) error {
	v.Title, v.Page = "Task "+r.PathValue("id"), "task"
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return fault("the id of a task is a number")
	}
	list, err := c.Queue.List(r.Context(), queue.Filter{IDs: []uint64{id}}, 1)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		v.status, v.Problem = http.StatusNotFound, "There is no such task: finished and discarded ones are deleted."
		return nil
	}
	one, text := list[0], strconv.FormatUint(id, 10)
	body := struct {
		Facts                           [][2]string
		Error                           string
		Retry, Discard, Event, Explains string
	}{Facts: inspect.Task(one, time.Now()), Error: inspect.Escaped(one.LastError)}
	if one.State == queue.Dead || one.State == queue.Scheduled {
		body.Retry = path("act", "id", text, "do", "retry")
	}
	if one.State != queue.Running {
		body.Discard = path("act", "id", text, "do", "discard")
	}
	switch {
	case slices.Contains([]string{push.Notify, push.Target, push.Deliver, push.Burst}, one.Kind):
		body.Event = path("event", "id", text)
	case slices.Contains(c.Kinds, one.Kind):
		body.Explains = path("explain", "member", strconv.FormatUint(one.Key, 10))
	}
	v.Body = body
	return nil
}

// memberOf reads a member that may be left out.
func memberOf(r *http.Request) (member.ID, error) {
	text := strings.TrimSpace(r.FormValue("member"))
	if text == "" {
		return 0, nil
	}
	id, err := member.Parse(text)
	if err != nil {
		return 0, fault("member: " + err.Error())
	}
	return id, nil
}

func (c *Console) showEvent(r *http.Request, v *view) error {
	v.Title, v.Page = "Event", "event"
	body := struct {
		ID, Member string
		Waiting    bool // it was not targeted yet
		Facts      [][2]string
		Fates      grid
		More       bool
	}{ID: strings.TrimSpace(r.FormValue("id")), Member: r.FormValue("member")}
	v.Body = &body
	if body.ID == "" {
		return nil
	}
	only, err := memberOf(r)
	if err != nil {
		return err
	}
	events, ctx, now := &inspect.Events{Queue: c.Queue, Store: c.Push}, r.Context(), time.Now()
	e, waiting, err := events.Find(ctx, body.ID)
	if err != nil {
		return err
	}
	if e == nil {
		body.Waiting, body.Facts = true, inspect.Task(*waiting, now)
		return nil
	}
	v.Title = "Event " + inspect.OneLine(e.ID)
	if body.Facts, err = events.Facts(ctx, e, now); err != nil {
		return err
	}
	var fates []push.Fate
	for page, err := range events.Fates(ctx, e, only) {
		if err != nil {
			return err
		}
		if fates = append(fates, page...); len(fates) > maxRows {
			break
		}
	}
	body.More = len(fates) > maxRows
	body.Fates = grid{ID: "fates", Label: "Deliveries", Table: inspect.Fates(fates[:min(len(fates), maxRows)], now)}
	return nil
}

func (c *Console) showExplanation(r *http.Request, v *view) error {
	v.Title, v.Page = "A member's answer", "explain"
	body := struct {
		Member string
		recent.Explanation
		Grid grid
	}{Member: strings.TrimSpace(r.FormValue("member"))}
	v.Body = &body
	id, err := memberOf(r)
	if err != nil || id == 0 {
		return err
	}
	if body.Explanation, err = c.Explain(r.Context(), id); err != nil {
		return err
	}
	body.Grid = grid{ID: "candidates", Label: "Candidates", Table: inspect.Table{Head: body.Head, Rows: body.Candidates}}
	return nil
}
