// Package miniredistest lets miniredis answer what activityd asks each Redis.
package miniredistest

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Run starts a server that ends with the test.
func Run(t miniredis.Tester) *miniredis.Miniredis {
	m := miniredis.RunT(t)
	m.Server().SetPreHook(Info())
	return m
}

// Info returns a hook that answers INFO as a server which was started now, and is a master.
func Info() server.Hook {
	run := rand.Text()
	return func(c *server.Peer, cmd string, _ ...string) bool {
		if !strings.EqualFold(cmd, "INFO") {
			return false
		}
		c.WriteBulk(fmt.Sprintf("# Server\r\nrun_id:%s\r\n# Replication\r\nrole:master\r\n", run))
		return true
	}
}
