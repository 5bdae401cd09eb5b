package metrics

import (
	"net/http"
	"slices"

	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

// other is the value of a label for all that is not known.
const other = "other"

// labels are the values that a label may take beside [other].
type labels []string

// of returns value if it is known.
func (l labels) of(value string) string {
	if slices.Contains(l, value) {
		return value
	}
	return other
}

// usual says which types of tasks are in which of the standard queues. A site
// may move them; then their series come with their first task.
var usual = map[string][]string{
	tasks.QueueDefault: {tasks.AddContact, tasks.RemoveContact, tasks.Upload},
	tasks.QueueFanOut:  {tasks.FanOut},
	tasks.QueueRefill:  {tasks.Refill},
}

// types are the known types of tasks.
var types = labels{
	tasks.AddContact, tasks.RemoveContact, tasks.Upload, tasks.FanOut, tasks.Refill,
}

// outcomes are the ends of a task's run.
var outcomes = labels{
	string(queue.OutcomeDone), string(queue.OutcomeRetried), string(queue.OutcomePostponed), string(queue.OutcomeDied),
}

// methods are those that a client of the API has any reason to send.
var methods = labels{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// queueLabels are the standard queues and those of this process' configuration.
func queueLabels(configured []string) labels {
	queues := labels{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueRefill}
	for _, q := range configured {
		if queues.of(q) == other {
			queues = append(queues, q)
		}
	}
	return queues
}
