//go:build unix

package endtoend_test

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// owners map the connections of a push service to processes. The service asks owners when it accepts a
// connection, before the handshake: its client is alive then.
type owners struct {
	mu       sync.Mutex
	programs []*program
	of       map[string][]owned // by the client's address, which a later client may reuse
}

// owned is a connection since when. Its run is nil if it is not known.
type owned struct {
	since time.Time
	run   *run
}

func (o *owners) add(p *program) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.programs = append(o.programs, p)
}

// note finds the process that has just opened a connection.
func (o *owners) note(remote net.Addr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := owned{since: time.Now()}
	if tcp, is := remote.(*net.TCPAddr); is {
		for _, p := range o.programs {
			if r := p.latest(); r != nil && hasConnection(r.group, tcp.Port) {
				one.run = r
			}
		}
	}
	o.of[remote.String()] = append(o.of[remote.String()], one)
}

// at returns whose connection it was at a time; nil if that is not known.
func (o *owners) at(remote string, when time.Time) (r *run) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.of[remote] {
		if !one.since.After(when) {
			r = one.run
		}
	}
	return r
}

// name is that of the program, and how often it was started.
func (r *run) name() string {
	if r == nil {
		return "all"
	}
	return fmt.Sprint("process ", r.group)
}
