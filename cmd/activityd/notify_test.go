package main

import (
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/miniredistest"
	"github.com/activityd/activityd/internal/wake"
)

// A task that is retried need not wait for a poll.
func TestRetryWakesWorkersIfARedisIsNamed(t *testing.T) {
	t.Parallel()
	o, mini := newOperator(t), miniredistest.Run(t)
	o.makeDead(t, 1)
	heard := mini.NewSubscriber()
	defer heard.Close()
	heard.Subscribe(wake.Channel)
	environ := []string{"ACTIVITYD_REDIS_URL=redis://" + mini.Addr()}
	if code, out, errs := command(t, environ, "tasks", "retry", "--all", "--mysql-dsn", o.dsn); code != exitOK || out != "retried 1 tasks\n" {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	select {
	case message := <-heard.Messages():
		if !strings.HasPrefix(message.Message, "default") {
			t.Errorf("message %q", message.Message)
		}
	case <-time.After(20 * time.Second):
		t.Error("nothing was published within 20 s")
	}
}
