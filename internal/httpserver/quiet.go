package httpserver

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// summaryEvery is the time between two lines of a [summary].
const summaryEvery = time.Minute

// summary logs events that unknown clients can cause at any rate: a line at the first,
// and then at most a line a minute, with the count of each kind since the line before.
type summary struct {
	log     func(message string, args ...any) // at its level
	message string

	mu     sync.Mutex
	counts map[string]int // by kind, since the last line
	last   string         // detail
	timer  *time.Timer    // nil: no line was logged in the last minute
}

// count counts an event of a kind. The line has the last detail that is not empty.
func (s *summary) count(kind, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[kind]++
	s.last = cmp.Or(detail, s.last)
	if s.timer == nil {
		s.write()
	}
}

// write logs the counts, if any, and delays the next line by a minute. The caller holds mu.
func (s *summary) write() {
	s.timer = nil
	if len(s.counts) == 0 {
		return
	}
	var args []any
	for _, kind := range slices.Sorted(maps.Keys(s.counts)) {
		args = append(args, kind, s.counts[kind])
	}
	if s.last != "" {
		args = append(args, "last", s.last)
	}
	s.log(s.message, args...)
	clear(s.counts)
	s.last = ""
	s.timer = time.AfterFunc(summaryEvery, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.write()
	})
}

// flush logs the counts at once, and leaves no timer behind.
func (s *summary) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.write()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// errorLog takes the messages of net/http. Nearly all are about clients that violate the
// protocol: it logs them at the level debug, and counts them.
type errorLog struct{ server *Server }

func (e errorLog) Write(line []byte) (int, error) {
	text, s := string(bytes.TrimSpace(line)), e.server
	log := s.options.Log.Debug
	switch {
	case bytes.HasPrefix(line, []byte("http: Accept error")): // out of files, say; it is tried again
		s.refusedConnections.count("accept_error", text)
	case bytes.HasPrefix(line, []byte("http: panic serving")), bytes.HasPrefix(line, []byte("http2: panic serving")):
		log = s.options.Log.Error
	default:
		s.refusedRequests.count("protocol", fmt.Sprintf("%.200s", text)) // a client chooses it
	}
	log(text)
	return len(line), nil
}
