package httpserver

import (
	"bytes"
	"maps"
	"slices"
	"sync"
	"time"
)

// summaryEvery is the time between two lines of a [summary].
const summaryEvery = time.Minute

// summary logs what strangers can make happen as often as they like: one line when
// it happens first, and after that at most one a minute, with how often each kind of
// it has happened since the line before.
type summary struct {
	log     func(message string, args ...any) // at its level
	message string

	mu     sync.Mutex
	counts map[string]int // by kind, since the last line
	last   string         // detail
	timer  *time.Timer    // nil: no line was logged in the last minute
}

// count counts one of a kind. The last detail that is not empty stands in the line.
func (s *summary) count(kind, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = make(map[string]int)
	}
	s.counts[kind]++
	if detail != "" {
		s.last = detail
	}
	if s.timer == nil {
		s.tell()
	}
}

// tell logs what was counted, if anything, and waits for a minute. The caller has the
// lock.
func (s *summary) tell() {
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
		s.tell()
	})
}

// flush logs at once what has not been told yet.
func (s *summary) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.tell()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// errorLog is where net/http writes. Nearly all that it says is about clients that do
// not speak the protocol: that is a line at the level debug, and counted.
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
		s.refusedRequests.count("protocol", clip(text))
	}
	log(text)
	return len(line), nil
}

// clip keeps what a client sent from filling a line.
func clip(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
