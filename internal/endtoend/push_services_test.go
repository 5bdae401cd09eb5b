package endtoend_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/activityd/activityd/internal/push/apns/apnstest"
	"github.com/activityd/activityd/internal/push/webpush/webpushtest"
)

// lossyServices have the push services answer after some milliseconds, and lose some of their
// answers.
type lossyServices struct {
	apns   *apnstest.Server
	cutWeb atomic.Bool // the next message is taken, and then its connection is cut

	mu   sync.Mutex
	lost map[string]int // answers to accepted messages, by the device's token
}

func newLossyServices(apns *apnstest.Server, web *webpushtest.Server) *lossyServices {
	l := &lossyServices{apns: apns, lost: make(map[string]int)}
	const one = 400 // of so many messages
	apns.Answer(func(r apnstest.Request) apnstest.Answer {
		a := apnstest.Answer{Delay: time.Duration(5+rand.IntN(35)) * time.Millisecond}
		switch rand.IntN(one) {
		case 0:
			a.Reset, a.Accept = http2.ErrCodeInternal, true
			l.lose(r.Token)
		case 1:
			a.Reset = http2.ErrCodeRefusedStream
		case 2:
			a.Reset = http2.ErrCodeInternal
		}
		return a
	})
	web.Script(func(webpushtest.Request) webpushtest.Answer {
		a := webpushtest.Answer{Delay: time.Duration(5+rand.IntN(35)) * time.Millisecond}
		switch {
		case l.cutWeb.Swap(false):
			a.Cut = true
		case rand.IntN(20*one) == 0:
			a.Status, a.Header = http.StatusServiceUnavailable, http.Header{"Retry-After": {"1"}}
		}
		return a
	})
	return l
}

func (l *lossyServices) lose(device string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[device]++
}

// answersLost returns how many answers were lost, but for those on connections that were cut.
func (l *lossyServices) answersLost() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, times := range l.lost {
		n += times
	}
	return n
}
