package wake

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// The bounds of a message. A queue that does not fit in is found by polls.
const (
	mostQueues  = 100
	mostName    = 64 // bytes
	mostPayload = 8 << 10
)

// senderMark begins the part of a message that names its sender. No name of a
// queue that is told begins with it.
const senderMark = "@"

// encode makes a message of names, which must be tellable.
func encode(queues []string, sender string) string {
	return strings.Join(queues, ",") + "," + sender
}

// decode returns the names of queues in a message, and who sent it, if it says
// so. What is no name is ignored.
func decode(payload string) (queues []string, sender string) {
	if len(payload) > mostPayload {
		return nil, ""
	}
	for part := range strings.SplitSeq(payload, ",") {
		switch part = strings.TrimSpace(part); {
		case strings.HasPrefix(part, senderMark):
			sender = part
		case tellable(part) && len(queues) < mostQueues:
			queues = append(queues, part)
		}
	}
	return queues, sender
}

// tellable tells whether a name comes out of a message as it went in.
func tellable(queue string) bool {
	return queue != "" && len(queue) <= mostName && utf8.ValidString(queue) &&
		!strings.Contains(queue, ",") && !strings.HasPrefix(queue, senderMark) && strings.TrimSpace(queue) == queue
}

// pending are the queues that are to be published, each once.
type pending struct {
	added chan struct{} // told when there are any; holds one

	mu     sync.Mutex
	queues map[string]struct{}
}

// add never blocks.
func (p *pending) add(queues []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queues == nil {
		p.queues = make(map[string]struct{})
	}
	for _, queue := range queues {
		if len(p.queues) < mostQueues && tellable(queue) {
			p.queues[queue] = struct{}{}
		}
	}
	if len(p.queues) == 0 {
		return
	}
	select {
	case p.added <- struct{}{}:
	default: // it was told
	}
}

// take returns all queues and forgets them.
func (p *pending) take() (queues []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for queue := range p.queues {
		queues = append(queues, queue)
	}
	clear(p.queues)
	return queues
}
