package endtoend_test

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/schema"
)

// TestPrivateUploadsCostNothing: a private upload costs neither a task nor a command to Redis, by the triggers. To
// show a private photo costs a single task, which brings it into the sets.
func TestPrivateUploadsCostNothing(t *testing.T) {
	t.Parallel()
	const uploads = 20
	g := newGround(t, 4)
	hiding{visibility: contacts.Public}.setUp(t, g)
	must(t, schema.StandardTriggers().Install(t.Context(), g.db))
	p := g.started(t, "worker")
	g.exec(t, "INSERT INTO tasks (type, subject) VALUES ('upload', ?)", star) // the process executes its first commands before the count
	g.awaitIdle(t)
	task, commands := g.lastTask(t), g.commands(t)
	cost := func() (tasks int64, n int) {
		g.awaitIdle(t)
		before, executed := task, commands
		task, commands = g.lastTask(t), g.commands(t)
		return task - before - 1, commands - executed
	}
	for photo := range uploads {
		g.exec(t, "INSERT INTO photos (id, owner_id, visibility, date_upload) VALUES (?, ?, 'private', ?)", 1000+photo, star, start+photo)
	}
	if tasks, n := cost(); tasks != 0 || n != 0 {
		t.Errorf("private uploads cost %d tasks and %d commands to Redis", tasks, n)
	}
	g.exec(t, "UPDATE photos SET visibility = 'public' WHERE id = ?", 1000+uploads-1)
	if tasks, n := cost(); tasks != 1 || n == 0 {
		t.Errorf("a photo that is shown costs %d tasks and %d commands, want one task, and its commands", tasks, n)
	}
	set := g.sets(t)[viewer.String()]
	if top := set[len(set)-1]; top.Member != star.String() || top.Score != start+uploads-1 {
		t.Errorf("the set of the viewer is %v, want the photo that is shown on top", set)
	}
	g.checkSets(t)
	g.checkAnswers(t, p.reader, []member.ID{viewer})
}

var callsOf = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`)

// commands returns how many commands Redis executed, without the commands of observers.
func (g *ground) commands(t *testing.T) (n int) {
	t.Helper()
	stats, err := g.client.Info(t.Context(), "commandstats").Result()
	must(t, err)
	for _, found := range callsOf.FindAllStringSubmatch(stats, -1) {
		switch found[1] {
		case "info", "hello", "client|setinfo", "ping":
			continue
		}
		calls, err := strconv.Atoi(found[2])
		must(t, err)
		n += calls
	}
	return n
}

// lastTask returns the id of a task that it inserts, and takes away again.
func (g *ground) lastTask(t *testing.T) int64 {
	t.Helper()
	inserted, err := g.db.ExecContext(t.Context(), "INSERT INTO tasks (queue, type, subject) VALUES ('nobody', 'upload', 1)")
	must(t, err)
	id, err := inserted.LastInsertId()
	must(t, err)
	g.exec(t, "DELETE FROM tasks WHERE id = ?", id)
	return id
}
