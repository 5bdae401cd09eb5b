package push_test

import (
	"context"
	"crypto/x509"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/webpush"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/testing/webpushtest"
)

// crowded counts the messages in flight to devices of some members, at most.
type crowded struct {
	push.Sender

	mu           sync.Mutex
	now          map[member.ID]int
	all          int
	most, mostOf int
}

func (c *crowded) Send(ctx context.Context, m push.Message) push.Result {
	c.add(m.Device.Member, 1)
	defer c.add(m.Device.Member, -1)
	return c.Sender.Send(ctx, m)
}

func (c *crowded) add(of member.ID, n int) {
	if of >= firstHonest {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[of] += n
	c.all += n
	c.most, c.mostOf = max(c.most, c.all), max(c.mostOf, c.now[of])
}

// firstHonest is the first member that is honest.
const firstHonest = 100

// Five members name 240 push services that hang, reset, drip or answer without end, and each gets
// events, which come before those of others. All messages to honest push services are accepted
// while most of the others wait, also that to one of which nothing is known; and those take no more than
// the shares of the five members.
func TestHostilePushServicesHoldUpNoOther(t *testing.T) {
	t.Parallel()
	const hostile, ofMember, events, honest = 240, 48, 3, 20
	bad, err := webpushtest.StartHostile(hostile, webpushtest.Hangs, webpushtest.Resets, webpushtest.Drips, webpushtest.Endless)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bad.Close)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bad.RootPEM())
	var good [2]*webpushtest.Server // one for all who are honest, and a new one
	for i := range good {
		if good[i], err = webpushtest.Start(webpushtest.Options{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(good[i].Close)
		roots.AppendCertsFromPEM(good[i].RootPEM())
	}
	keys, err := webpush.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	sender, err := webpush.New(webpush.Options{
		Key: keys.PEM, Subject: "mailto:push@photos.example", RootCAs: roots, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sender.Close)

	w := newWorld(t, hostile+honest+2)
	for id, d := range w.devices {
		d.Platform = push.WebPush
		if i := int(id) - 1; i < hostile {
			s := bad.Subscription(i)
			d.Member, d.Address = member.ID(i/ofMember+1), webpush.NewAddress(s.Endpoint(), s.P256DH(), s.Auth())
		} else {
			at := good[0]
			if i == hostile+honest+1 {
				at = good[1]
			}
			s, err := at.Subscribe("")
			if err != nil {
				t.Fatal(err)
			}
			d.Member, d.Address = member.ID(firstHonest+i), webpush.NewAddress(s.Endpoint(), s.P256DH(), s.Auth())
		}
		w.devices[id] = d
	}
	w.origin = sender.Origin
	c, q := &crowded{Sender: sender, now: make(map[member.ID]int)}, &counted{Store: w.queue}
	o := w.options()
	o.Senders, o.Timeout = map[push.Platform]push.Sender{push.WebPush: c}, 2*time.Second
	w.start(push.NewDeliveries(o), q)
	until := func(what string, is func() bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for !is() {
			if retry.Sleep(ctx, 10*time.Millisecond) != nil {
				t.Fatalf("not %s", what)
			}
		}
	}
	accepted := func(n int) func() bool {
		return func() bool { return len(good[0].Accepted())+len(good[1].Accepted()) == n }
	}

	w.deliver(w.event(push.Event{}), hostile+1)
	until("accepted by the honest push service", accepted(1))
	var all []*push.StoredEvent
	for range events {
		all = append(all, w.event(push.Event{}))
	}
	w.deliverAll(all, devicesTo(hostile)...)
	until("sent to those that are hostile", func() bool { _, _, opened := bad.Conns(); return opened >= 5*8 })
	var ids []uint64
	for id := uint64(hostile + 2); id <= hostile+honest+2; id++ {
		ids = append(ids, id)
	}
	w.deliver(w.event(push.Event{}), ids...)
	until("accepted beside those that are hostile", accepted(honest+2))
	if _, _, opened := bad.Conns(); opened > hostile/2 {
		t.Errorf("%d connections to those that are hostile were opened before", opened)
	}

	until("sent to most", func() bool { _, _, opened := bad.Conns(); return opened >= hostile*3/4 })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mostOf > 8 || c.most > 5*8 {
		t.Errorf("%d messages were in flight, %d of them of a member; want at most 40 and 8", c.most, c.mostOf)
	}
	// A connection that dripped stays open for a while. One whose answer does not end is closed, after some buffers.
	if _, most, opened := bad.Conns(); most > hostile {
		t.Errorf("%d connections at once, %d in all", most, opened)
	}
	if requests, _ := bad.Requests(); bad.Written() > requests*2<<20 {
		t.Errorf("%d bytes of endless answers were read, of %d requests", bad.Written(), requests)
	}
	if n := q.postponed.Load(); n > events*hostile*8 {
		t.Errorf("%d deliveries were put off %d times", events*hostile, n)
	}
	t.Logf("%d messages, %d of a member; %d put off; %d bytes", c.most, c.mostOf, q.postponed.Load(), bad.Written())
}
