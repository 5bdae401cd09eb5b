//go:build unix

package endtoend_test

import (
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/push/fcm"
	"github.com/activityd/activityd/internal/push/webpush"
	"github.com/activityd/activityd/internal/testing/apnstest"
	"github.com/activityd/activityd/internal/testing/fcmtest"
	"github.com/activityd/activityd/internal/testing/webpushtest"
)

// lossyServices have the push services answer after some milliseconds, and lose some of their
// answers.
type lossyServices struct {
	wrong          *windows
	cutWeb, cutFCM atomic.Bool // the next message is taken, and then its connection is cut
}

func newLossyServices(wrong *windows, apple *apnstest.Server, web *webpushtest.Server, google *fcmtest.Server) *lossyServices {
	l := &lossyServices{wrong: wrong}
	const one = 400 // of so many messages
	delay := func() time.Duration { return time.Duration(5+rand.IntN(35)) * time.Millisecond }
	apple.Answer(func(r apnstest.Request) apnstest.Answer {
		a := apnstest.Answer{Delay: delay()}
		switch rand.IntN(one) {
		case 0:
			a.Reset, a.Accept = http2.ErrCodeInternal, true
			l.lose(window{what: "answer lost", platform: apns.Platform, key: r.Token})
		case 1:
			a.Reset = http2.ErrCodeRefusedStream
		case 2:
			a.Reset = http2.ErrCodeInternal
		}
		return a
	})
	web.Script(func(webpushtest.Request) webpushtest.Answer {
		a := webpushtest.Answer{Delay: delay()}
		switch {
		case l.cutWeb.Swap(false):
			a.Cut = true
			l.lose(window{what: "cut", platform: webpush.Platform})
		case rand.IntN(20*one) == 0:
			a.Status, a.Header = http.StatusServiceUnavailable, http.Header{"Retry-After": {"1"}}
		}
		return a
	})
	google.SetScript(func(fcmtest.Message) fcmtest.Reply {
		r := fcmtest.Reply{Delay: delay()}
		switch {
		case l.cutFCM.Swap(false):
			r.Cut, r.Accept = true, true
			l.lose(window{what: "cut", platform: fcm.Platform})
		case rand.IntN(5*one) == 0:
			r.Status, r.Canonical = http.StatusServiceUnavailable, "UNAVAILABLE"
		}
		return r
	})
	return l
}

// lose notes that answers are lost, at some time until a second from now: the service is to wait before that.
func (l *lossyServices) lose(w window) {
	w.from = time.Now()
	w.to = w.from.Add(time.Second)
	l.wrong.add(w)
}
