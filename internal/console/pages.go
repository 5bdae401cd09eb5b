package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
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
	maxRows     = 50
	maxPages    = 20 // of tasks
	maxGroups   = 50
	maxFailures = 1000 // tasks that failed whose errors are grouped
)

// path returns the path of a page with its values that are not empty.
func path(page string, values ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(values); i += 2 {
		if values[i+1] != "" {
			q.Set(values[i], values[i+1])
		}
	}
	return strings.TrimSuffix("/console/"+page+"?"+q.Encode(), "?")
}

// grid is a table as it is shown: the first cells of its rows may be links.
type grid struct {
	ID, Label string
	inspect.Table
	Links []string // by row; none: no row has a link
}

// Name returns the name of a column, in lower case.
func (g grid) Name(column int) string { return strings.ToLower(g.Head[column]) }

// None reports whether a cell says nothing, so that a narrow page leaves it out.
func (g grid) None(cell string) bool { return cell == "" || cell == "-" || cell == "0" }

// Long reports whether a column has sentences.
func (g grid) Long(column int) bool {
	return slices.Contains([]string{"LAST ERROR", "REASON", "ARGS", "VERDICT"}, g.Head[column])
}

// queueNow is a queue, with a row for each type.
type queueNow struct {
	Name, List string
	Facts      [][2]string
	Paused     bool
	Types      grid
}

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
	type failures struct {
		inspect.Failures
		List string
	}
	now := inspect.NewQueues(stats, time.Now())
	body := struct {
		Queues        []queueNow
		At            string
		More, Partial bool
		Failures      []failures
	}{At: now.At, More: now.More, Partial: partial || len(list) == maxFailures}
	for _, q := range now.Queues {
		body.Queues = append(body.Queues, newQueueNow(inspect.Queues{Limit: now.Limit, Queues: []inspect.Queue{q}}))
	}
	for _, f := range inspect.GroupFailures(list, maxGroups) {
		at := path("tasks", "queue", f.Queue, "type", f.Kind, "state", string(f.State), "error", f.Pattern)
		f.Error = inspect.Shortened(inspect.OneLine(f.Error), 300)
		body.Failures = append(body.Failures, failures{f, at})
	}
	v.Body = body
	return nil
}

// newQueueNow is for a table of one queue: its first row is of all types.
func newQueueNow(one inspect.Queues) queueNow {
	t, name := one.Table(), one.Queues[0].Queue
	q := queueNow{Name: name, List: path("tasks", "queue", name), Paused: one.Queues[0].Paused}
	types := len(t.Head) - 1 // the last column is of the queue alone
	for i := 2; i < types; i++ {
		if cell := t.Rows[0][i]; cell != "-" && cell != "0" {
			q.Facts = append(q.Facts, [2]string{strings.ToLower(t.Head[i]), cell})
		}
	}
	q.Types = grid{ID: "queue-" + name, Label: "Types of " + name, Table: inspect.Table{Head: t.Head[1:types]}}
	for i, row := range t.Rows[1:] {
		q.Types.Rows = append(q.Types.Rows, row[1:types])
		q.Types.Links = append(q.Types.Links, path("tasks", "queue", name, "type", one.Queues[0].Types[i].Type))
	}
	return q
}

// filter reads the filter of a form.
func filter(r *http.Request) (match queue.Filter, err error) {
	get := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	if text := get("id"); text != "" {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return match, fault("id: want a number")
		}
		match.IDs = []uint64{id}
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
	if match.Error = get("error"); len(match.Error) > 1000 {
		return match, fault("error: want at most 1000 bytes")
	}
	return match, nil
}

// narrowed reports whether a filter names more than a state.
func narrowed(f queue.Filter) bool {
	return len(f.IDs)+len(f.Kinds)+len(f.Queues) > 0 || f.Key != 0 || f.Error != ""
}

// acts is the form of the changes that tasks may get by hand.
type acts struct {
	Retry, Discard bool
	Fields         map[string]string
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
	body := struct {
		Asked        map[string]string
		States       []queue.State
		Tasks        grid
		Partial      bool
		Limit        int
		Newer, Older string
		Acts         acts
	}{Asked: make(map[string]string), States: queue.States(), Partial: partial, Limit: queue.SearchLimit}
	var asked []string
	for _, field := range []string{"key", "type", "queue", "state", "error"} {
		body.Asked[field] = r.FormValue(field)
		asked = append(asked, field, r.FormValue(field))
	}
	if at > 1 {
		body.Newer = path("tasks", append(asked, "page", strconv.Itoa(at-1))...)
	}
	if len(list) > at*maxRows && at < maxPages {
		body.Older = path("tasks", append(asked, "page", strconv.Itoa(at+1))...)
	}
	if narrowed(match) && len(match.States) > 0 && len(list) > 0 {
		state := match.States[0]
		body.Acts = acts{canBe("retry", state), canBe("discard", state), body.Asked}
	}
	list = list[min(len(list), (at-1)*maxRows):min(len(list), at*maxRows)]
	body.Tasks = grid{ID: "tasks", Label: "Tasks", Table: inspect.Tasks(list, time.Now())}
	for _, task := range list {
		body.Tasks.Links = append(body.Tasks.Links, path("tasks/"+strconv.FormatUint(task.ID, 10)))
	}
	v.Body = body
	return nil
}

func (c *Console) showTask(r *http.Request, v *view) error {
	text := r.PathValue("id")
	v.Title, v.Page = "Task "+text, "task"
	id, err := strconv.ParseUint(text, 10, 64)
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
	task := list[0]
	body := struct {
		Facts                  [][2]string
		Error, Event, Explains string
		Acts                   acts
	}{Facts: inspect.Task(task, time.Now()), Error: inspect.Escaped(task.LastError)}
	body.Acts = acts{canBe("retry", task.State), canBe("discard", task.State), map[string]string{"id": text}}
	switch {
	case slices.Contains([]string{push.Notify, push.Target, push.Deliver, push.Burst}, task.Kind):
		body.Event = path("event", "id", text)
	case slices.Contains(c.Kinds, task.Kind):
		body.Explains = path("explain", "member", strconv.FormatUint(task.Key, 10))
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
			body.More, fates = true, fates[:maxRows]
			break
		}
	}
	body.Fates = grid{ID: "fates", Label: "Deliveries", Table: inspect.Fates(fates, now)}
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
