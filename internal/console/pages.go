package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/queue"
)

// How much a page shows.
const (
	maxRows     = 50
	maxGroups   = 50
	maxReceipts = 100_000
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

// Long reports whether a column has sentences.
func (g grid) Long(column int) bool {
	switch g.Head[min(column, len(g.Head)-1)] {
	case "LAST ERROR", "REASON", "ARGS", "BECAUSE", "VERDICT":
		return true
	}
	return false
}

// overview is what the first page shows.
type overview struct {
	queues   inspect.Queues
	failures []inspect.Failures
	partial  bool
	err      error // of the last look; the rest is of the last one that succeeded
}

// overviewEvery is how often the queues are looked at, however many browsers ask. A look takes a tenth of the time
// at most.
const overviewEvery = 4 * time.Second

// lookTimeout is how long a look may take, for which no page waits longer than askTimeout.
const lookTimeout = 15 * time.Second

func (c *Console) look() (o overview, keep time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	began := time.Now()
	l, err := c.Queue.Look(ctx, c.before)
	var list []queue.Failure
	if err == nil {
		c.before = &l
		list, o.partial, err = c.Queue.Failures(ctx)
	}
	if err == nil {
		o.queues, o.failures = inspect.NewQueues(l, time.Now()), inspect.GroupFailures(list, maxGroups)
		c.good = o
	}
	o = c.good
	o.err = err
	return o, max(overviewEvery, min(10*time.Since(began), time.Minute))
}

// failureRow is a group of failures, and where one gets from it.
type failureRow struct {
	inspect.Failures
	List, Retry, Discard string
}

func (c *Console) showQueues(_ *http.Request, v *view) error {
	v.Title, v.Page = "Queues", "queues"
	o, known := c.overview.Get(askTimeout)
	switch {
	case !known:
		return context.DeadlineExceeded
	case o.err != nil && o.queues.At == "":
		return o.err
	}
	body := struct {
		Queues   grid
		Old      bool
		At       string
		Measured bool
		More     bool
		Failures []failureRow
		Partial  bool
	}{grid{ID: "queues", Label: "Queues", Table: o.queues.Table()}, o.err != nil, o.queues.At, o.queues.Over > 0, o.queues.More, nil, o.partial}
	for _, row := range body.Queues.Rows {
		link := ""
		if row[0] != "" {
			link = path("tasks", "queue", row[0])
		}
		body.Queues.Links = append(body.Queues.Links, link)
	}
	for _, f := range o.failures {
		q := []string{"queue", f.Queue, "type", f.Kind, "state", string(f.State), "error", f.Pattern}
		f.Error = inspect.Shortened(inspect.OneLine(f.Error), 300)
		body.Failures = append(body.Failures, failureRow{
			f, path("tasks", q...), path("act", append(q, "do", "retry")...), path("act", append(q, "do", "discard")...),
		})
	}
	v.Body = body
	return nil
}

// filter reads which tasks are asked for.
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
	list, partial, err := c.Queue.Search(r.Context(), match, maxRows+1)
	if err != nil {
		return err
	}
	a := askedBy(r)
	q := []string{"id", a.ID, "key", a.Key, "type", a.Type, "queue", a.Queue, "state", a.State, "error", a.Error}
	body := struct {
		Asked          asked
		Tasks          grid
		More, Partial  bool
		Limit          int
		Retry, Discard string
	}{Asked: a, Tasks: tasksGrid(list[:min(len(list), maxRows)]), More: len(list) > maxRows, Partial: partial, Limit: queue.SearchLimit}
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
	case slices.Contains([]string{push.Notify, push.Target, push.Deliver}, one.Kind):
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
		Tasks      grid
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
	events, ctx, now := &inspect.Events{Queue: c.Queue, Store: c.Push, Only: only}, r.Context(), time.Now()
	e, waiting, err := events.Find(ctx, body.ID)
	if err != nil {
		return err
	}
	if waiting != nil {
		body.Waiting, body.Facts = true, inspect.Task(*waiting, now)
		return nil
	}
	counts, err := c.Push.CountReceipts(ctx, e.Number, maxReceipts)
	if err != nil {
		return err
	}
	tasks, err := events.Tasks(ctx, e)
	if err != nil {
		return err
	}
	var fates []push.Fate
	for page, err := range c.Push.Fates(ctx, e.Number, events.Only) {
		if err != nil {
			return err
		}
		if fates = append(fates, page...); len(fates) > maxRows {
			break
		}
	}
	v.Title, body.Facts, body.More = "Event "+inspect.OneLine(e.ID), inspect.Event(e, counts, now), len(fates) > maxRows
	tasks = tasks[:min(len(tasks), maxRows)]
	body.Tasks = grid{ID: "tasks", Label: "Tasks that are not done", Table: inspect.EventTasks(tasks, now)}
	for _, t := range tasks {
		body.Tasks.Links = append(body.Tasks.Links, "/console/tasks/"+strconv.FormatUint(t.ID, 10))
	}
	body.Fates = grid{ID: "fates", Label: "Deliveries", Table: inspect.Fates(fates[:min(len(fates), maxRows)], now)}
	return nil
}

// maxNames is how many names of once are shown.
const maxNames = 200

func (c *Console) showNames(r *http.Request, v *view) error {
	v.Title, v.Page = "Once", "once"
	list, err := c.Names(r.Context(), maxNames+1)
	v.Body = struct {
		Names grid
		More  bool
	}{grid{ID: "names", Label: "Names", Table: inspect.Names(list[:min(len(list), maxNames)])}, len(list) > maxNames}
	return err
}

func (c *Console) showExplanation(r *http.Request, v *view) error {
	v.Title, v.Page = "A member's answer", "explain"
	body := struct {
		Member string
		inspect.Explanation
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
	body.Grid = grid{ID: "candidates", Label: "Candidates", Table: body.Candidates}
	return nil
}
