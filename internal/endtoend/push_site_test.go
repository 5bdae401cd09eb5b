package endtoend_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/net/http2"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/push/fcm"
	"github.com/activityd/activityd/internal/push/webpush"
	"github.com/activityd/activityd/internal/testing/apnstest"
	"github.com/activityd/activityd/internal/testing/fcmtest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/internal/testing/webpushtest"
)

// The members of a site with push. Every third recipient is restless: it opts out, mutes the first actor,
// blocks actors and is blocked by them, has devices that come and go, and is no member at times. Of the other
// recipients, some have quiet hours, and all else stays as it is.
const (
	pushActors     = 6
	pushRecipients = 60
	firstRecipient = member.ID(101)
	mutedActor     = member.ID(1)
	restlessType   = "fave" // the restless opt out of it
)

// pushSite is a site that notifies its members, the push services that reach them, and the test's record of
// both.
type pushSite struct {
	*ground
	store          *push.MySQL   // the site's own way to change devices and settings
	producer       *redis.Client // the site's own way to the stream
	apns           *apnstest.Server
	fcm            *fcmtest.Server
	web            *webpushtest.Server
	lossy          atomic.Bool // APNs loses answers
	cutWeb, cutFCM atomic.Bool // the next message is taken, and then its connection is cut
	senders        []string    // settings of activityd, for the push services
	recipients     []*recipient
	sleepers       []*recipient           // recipients with quiet hours
	byKey          map[string]*pushDevice // by token, or id of the subscription
	photos         map[member.ID]*photo   // by actor: each has a photo

	mu         sync.Mutex
	byID       map[uint64]*pushDevice
	sent       map[string]*sentEvent // by id
	unanswered []unanswered
}

// unanswered is a message that a push service accepted, and whose answer was lost.
type unanswered struct {
	key string // in byKey
	at  time.Time
}

func (s *pushSite) loses(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unanswered = append(s.unanswered, unanswered{key, time.Now()})
}

// recipient is a member that is notified.
type recipient struct {
	id       member.ID
	restless bool
	follows  map[member.ID]bool // actors
	friendOf map[member.ID]bool // actors who call it a friend
	devices  []*pushDevice
	wants    *timeline[bool]               // events of restlessType
	muted    *timeline[bool]               // mutedActor
	blocked  map[member.ID]*timeline[bool] // by actor
	alive    *timeline[bool]               // it is a member
	quiet    *timeline[bool]               // it has quiet hours, until wake
}

// pushDevice is a phone or a browser.
type pushDevice struct {
	id      uint64 // the first id; latest is the present id
	latest  uint64
	member  *recipient
	address push.Address
	of      push.Platform
	live    *timeline[bool] // it is registered, and its app is there

	key         string                    // in byKey
	browser     *webpushtest.Subscription // of a browser
	uninstalled bool
}

// photo is a photo whose visibility changes, with its owner, an actor. The transaction of a change sets the
// owner's username to the number of the state. A title that is the username as of the last look therefore
// tells the state of the last look.
type photo struct {
	id     uint64
	owner  member.ID
	class  *timeline[contacts.Visibility]
	states []photoState
}

// photoState decides who is notified of the doings of an actor.
type photoState struct {
	class            contacts.Visibility // of the photo
	blocked, deleted map[member.ID]bool  // recipients
}

// username is that of the latest state.
func (p *photo) username() string { return fmt.Sprintf("actor-%s %d", p.owner, len(p.states)-1) }

// stateIn returns the state whose username a title is; false: it is that of none.
func (p *photo) stateIn(title string) (photoState, bool) {
	words := strings.Fields(title)
	if len(words) < 2 || words[0] != "actor-"+p.owner.String() {
		return photoState{}, false
	}
	number, err := strconv.Atoi(words[1])
	if err != nil || number >= len(p.states) {
		return photoState{}, false
	}
	return p.states[number], true
}

func (r *recipient) sees(owner member.ID, class contacts.Visibility) bool {
	return class == contacts.Public || class == contacts.Friends && r.friendOf[owner]
}

// newPushSite loads members, contacts, photos and devices. The seed determines all random choices.
func newPushSite(t *testing.T, g *ground, seed uint64) *pushSite {
	t.Helper()
	s := &pushSite{
		ground: g, store: push.NewMySQL(g.db), producer: openRedis(t, g.redis), byKey: make(map[string]*pushDevice),
		photos: make(map[member.ID]*photo), sent: make(map[string]*sentEvent), byID: make(map[uint64]*pushDevice),
	}
	s.startServices(t)
	rnd := mathrand.New(mathrand.NewPCG(seed, 500))
	var members []site.Member
	var relations []site.Relation
	var photos []site.Photo
	for i := range member.ID(pushActors) {
		p := &photo{id: uint64(i) + 1, owner: i + 1, class: newTimeline(contacts.Public), states: []photoState{
			{contacts.Public, make(map[member.ID]bool), make(map[member.ID]bool)},
		}}
		s.photos[p.owner] = p
		members = append(members, site.Member{ID: p.owner, Username: p.username()})
		photos = append(photos, site.Photo{Owner: p.owner, Visibility: contacts.Public, DateUpload: start})
	}
	for i := range member.ID(pushRecipients) {
		r := &recipient{
			id: firstRecipient + i, restless: i%3 == 0, follows: make(map[member.ID]bool), friendOf: make(map[member.ID]bool),
			wants: newTimeline(true), muted: newTimeline(false), blocked: make(map[member.ID]*timeline[bool]),
			alive: newTimeline(true), quiet: newTimeline(false),
		}
		if !r.restless && i%5 == 1 {
			s.sleepers = append(s.sleepers, r)
		}
		s.recipients = append(s.recipients, r)
		members = append(members, site.Member{ID: r.id, Username: "recipient " + r.id.String()})
		for actor := range s.photos {
			r.blocked[actor] = newTimeline(false)
			if r.follows[actor] = rnd.IntN(3) == 0; r.follows[actor] {
				relations = append(relations, site.Relation{User: r.id, Contact: actor})
			}
			r.friendOf[actor] = rnd.IntN(2) == 0
			relations = append(relations, site.Relation{User: actor, Contact: r.id, Grant: site.Grant{Friend: r.friendOf[actor]}})
		}
	}
	must(t, g.site.LoadMembers(t.Context(), members))
	must(t, g.site.LoadContacts(t.Context(), relations))
	must(t, g.site.LoadPhotos(t.Context(), photos))
	for _, p := range s.photos {
		must(t, g.db.QueryRowContext(t.Context(), "SELECT id FROM photos WHERE owner_id = ?", p.owner).Scan(&p.id))
	}
	for i, r := range s.recipients {
		s.addDevice(t, r, apns.Platform)
		s.addDevice(t, r, []push.Platform{webpush.Platform, fcm.Platform}[i%2])
	}
	now := time.Now().UTC()
	quiet := push.QuietHours{From: now.Add(-time.Hour).Hour() * 60, To: now.Add(-2*time.Hour).Hour() * 60, Zone: "UTC"}
	for _, r := range s.sleepers { // before the first event
		must(t, r.quiet.set(t.Context(), true, func() error { return s.store.SetSettings(t.Context(), r.id, push.Settings{Quiet: quiet}) }))
	}
	// The trigger records each event that enters the queue, in the same transaction.
	g.exec(t, "CREATE TABLE notified (id VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY)")
	g.exec(t, "CREATE TRIGGER note_event AFTER INSERT ON tasks FOR EACH ROW IF NEW.type = 'notify' THEN INSERT IGNORE INTO notified"+
		" VALUES (JSON_UNQUOTE(JSON_EXTRACT(NEW.args, '$.id'))); END IF")
	return s
}

// startServices starts the push services, and writes the keys for them. The services answer after some
// milliseconds. Once lossy is set, APNs loses some answers.
func (s *pushSite) startServices(t *testing.T) {
	t.Helper()
	var err error
	s.apns = apnstest.Start(t)
	s.web, err = webpushtest.Start(webpushtest.Options{})
	must(t, err)
	t.Cleanup(s.web.Close)
	s.fcm, err = fcmtest.Start()
	must(t, err)
	t.Cleanup(func() { _ = s.fcm.Close() })
	const one = 400 // of so many messages
	delay := func() time.Duration { return time.Duration(5+mathrand.IntN(35)) * time.Millisecond }
	s.apns.Answer(func(r apnstest.Request) apnstest.Answer {
		a := apnstest.Answer{Delay: delay()}
		switch n := mathrand.IntN(one); {
		case !s.lossy.Load():
		case n == 0:
			a.Reset, a.Accept = http2.ErrCodeInternal, true
			s.loses(r.Token)
		case n == 1:
			a.Reset = http2.ErrCodeRefusedStream
		case n == 2:
			a.Reset = http2.ErrCodeInternal
		}
		return a
	})
	s.web.Script(func(r webpushtest.Request) webpushtest.Answer {
		a := webpushtest.Answer{Delay: delay(), Cut: s.cutWeb.Swap(false)}
		if a.Cut {
			s.loses(r.Subscription)
		} else if mathrand.IntN(20*one) == 0 {
			a.Status, a.Header = http.StatusServiceUnavailable, http.Header{"Retry-After": {"1"}}
		}
		return a
	})
	s.fcm.SetScript(func(m fcmtest.Message) fcmtest.Reply {
		cut := s.cutFCM.Swap(false)
		r := fcmtest.Reply{Delay: delay(), Cut: cut, Accept: cut}
		if cut {
			s.loses(m.Token)
		} else if mathrand.IntN(5*one) == 0 {
			r.Status, r.Canonical = http.StatusServiceUnavailable, "UNAVAILABLE"
		}
		return r
	})
	vapid, err := webpush.GenerateKey()
	must(t, err)
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	s.senders = []string{
		"ACTIVITYD_APNS_KEY=" + write("AuthKey_"+s.apns.KeyID()+".p8", s.apns.Key()), "ACTIVITYD_APNS_TEAM_ID=" + s.apns.TeamID(),
		"ACTIVITYD_APNS_TOPIC=" + s.apns.Topic(), "ACTIVITYD_APNS_URL=" + s.apns.URL(),
		"ACTIVITYD_WEBPUSH_KEY=" + write("vapid.pem", vapid.PEM), "ACTIVITYD_WEBPUSH_SUBJECT=mailto:ops@example.com", "ACTIVITYD_WEBPUSH_HOSTS=127.0.0.1",
		"ACTIVITYD_FCM_CREDENTIALS=" + write("fcm.json", s.fcm.Credentials()), "ACTIVITYD_FCM_URL=" + s.fcm.URL(),
		"SSL_CERT_FILE=" + write("roots.pem", slices.Concat(s.apns.RootsPEM(), s.web.RootsPEM(), s.fcm.RootsPEM())),
	}
}

func (s *pushSite) addDevice(t *testing.T, r *recipient, of push.Platform) {
	t.Helper()
	d := &pushDevice{member: r, of: of, live: newTimeline(true)}
	must(t, s.newAddress(d))
	must(t, s.register(t.Context(), d))
	d.id = d.latest
	r.devices = append(r.devices, d)
}

// newAddress gives a device a unique address.
func (s *pushSite) newAddress(d *pushDevice) (err error) {
	token := make([]byte, 32)
	_, _ = rand.Read(token) // it never fails
	d.key = hex.EncodeToString(token)
	switch d.of {
	case apns.Platform:
		d.address = apns.NewAddress(d.key, false)
	case fcm.Platform:
		d.address = fcm.NewAddress(d.key)
	default:
		if d.browser, err = s.web.Subscribe(""); err != nil {
			return err
		}
		d.key = d.browser.ID()
		d.address = webpush.NewAddress(d.browser.Endpoint(), d.browser.P256DH(), d.browser.Auth())
	}
	s.byKey[d.key] = d
	return nil
}

// register registers a device. A device that had been removed gets a new id.
func (s *pushSite) register(ctx context.Context, d *pushDevice) error {
	stored, err := s.store.Register(ctx, d.member.id, d.of, d.address, "")
	if err == nil {
		d.latest = stored.ID
		s.mu.Lock()
		defer s.mu.Unlock()
		s.byID[d.latest] = d
	}
	return err
}

// change changes a photo, or something of a restless member.
func (s *pushSite) change(ctx context.Context, rnd *mathrand.Rand) error {
	if rnd.IntN(2) == 0 {
		return s.changePhoto(ctx, s.photos[member.ID(1+rnd.IntN(pushActors))], rnd)
	}
	r := s.recipients[3*rnd.IntN(len(s.recipients)/3)]
	if !r.alive.latest() || rnd.IntN(40) == 0 {
		return s.changeMember(ctx, r)
	}
	switch rnd.IntN(5) {
	case 0:
		wants := rnd.IntN(2) == 0
		return r.wants.set(ctx, wants, func() error {
			return s.store.SetSettings(ctx, r.id, push.Settings{Types: map[string]bool{restlessType: wants}})
		})
	case 1:
		muted := rnd.IntN(2) == 0
		return r.muted.set(ctx, muted, func() (err error) {
			if muted {
				return s.store.Mute(ctx, r.id, "user:"+mutedActor.String(), time.Now().Add(time.Hour))
			}
			_, err = s.store.Unmute(ctx, r.id, "user:"+mutedActor.String())
			return err
		})
	case 2:
		return s.changeBlock(ctx, r, s.photos[member.ID(1+rnd.IntN(pushActors))], rnd.IntN(2) == 0)
	default:
		return s.changeDevice(ctx, r.devices[rnd.IntN(len(r.devices))], rnd)
	}
}

// changeDevice registers a device, or removes it as its member does, or uninstalls its app. Only the push
// service knows of the last.
func (s *pushSite) changeDevice(ctx context.Context, d *pushDevice, rnd *mathrand.Rand) error {
	live, removed := rnd.IntN(2) == 0, rnd.IntN(2) == 0
	if live && d.uninstalled { // the same phone keeps its token at Apple's, and gets a new token at Google's
		d.uninstalled = false
		if d.of == apns.Platform {
			s.apns.Register(d.key)
		} else if err := s.newAddress(d); err != nil {
			return err
		}
	}
	return d.live.set(ctx, live, func() error {
		switch {
		case live:
			return s.register(ctx, d)
		case removed:
			_, err := s.store.Remove(ctx, d.member.id, d.latest)
			return err
		case d.of == apns.Platform:
			s.apns.Unregister(d.key, time.Now())
		case d.of == fcm.Platform:
			s.fcm.Unregister(d.key)
		default:
			d.browser.Unsubscribe()
		}
		d.uninstalled = true
		return nil
	})
}

// changePhoto gives a photo another visibility.
func (s *pushSite) changePhoto(ctx context.Context, p *photo, rnd *mathrand.Rand) error {
	class := []contacts.Visibility{contacts.Public, contacts.Friends, contacts.Private}[rnd.IntN(3)]
	write := s.announced([]*photo{p}, func(now *photoState) { now.class = class },
		"UPDATE photos SET visibility = ? WHERE id = ?", string(class), p.id)
	return p.class.set(ctx, class, func() error { return write(ctx) })
}

// changeBlock makes or ends a block between a recipient and an actor, in one direction. A block in either
// direction suffices.
func (s *pushSite) changeBlock(ctx context.Context, r *recipient, p *photo, byActor bool) error {
	blocked := !r.blocked[p.owner].latest()
	query, args := "DELETE FROM blocks WHERE user_id IN (?, ?) AND blocked_id IN (?, ?)", []any{r.id, p.owner, r.id, p.owner}
	if blocked {
		query, args = "REPLACE INTO blocks (user_id, blocked_id) VALUES (?, ?)", []any{r.id, p.owner}
		if byActor {
			args = []any{p.owner, r.id}
		}
	}
	write := s.announced([]*photo{p}, func(now *photoState) { now.blocked[r.id] = blocked }, query, args...)
	return r.blocked[p.owner].set(ctx, blocked, func() error { return write(ctx) })
}

// changeMember deletes a recipient, or has it be a member again: its devices are kept for a day.
func (s *pushSite) changeMember(ctx context.Context, r *recipient) error {
	alive := !r.alive.latest()
	query, args := "DELETE FROM users WHERE id = ?", []any{r.id}
	if alive {
		query, args = "REPLACE INTO users (id, username) VALUES (?, ?)", []any{r.id, "recipient " + r.id.String()}
	}
	var all []*photo
	for _, id := range slices.Sorted(maps.Keys(s.photos)) {
		all = append(all, s.photos[id])
	}
	write := s.announced(all, func(now *photoState) { now.deleted[r.id] = !alive }, query, args...)
	return r.alive.set(ctx, alive, func() error { return write(ctx) })
}

// announced returns a change of who is notified of the doings of some actors. The change's transaction also
// gives the actors usernames that identify the new states. It is idempotent.
func (s *pushSite) announced(of []*photo, change func(now *photoState), query string, args ...any) func(context.Context) error {
	for _, p := range of {
		now := p.states[len(p.states)-1]
		now.blocked, now.deleted = maps.Clone(now.blocked), maps.Clone(now.deleted)
		change(&now)
		p.states = append(p.states, now)
	}
	var statements []statement
	for _, p := range of {
		statements = append(statements, sqlText("UPDATE users SET username = ? WHERE id = ?", p.username(), p.owner))
	}
	statements = append(statements, sqlText(query, args...))
	return func(ctx context.Context) error { return s.transact(ctx, sql.LevelDefault, statements, true) }
}

// wake ends all quiet hours.
func (s *pushSite) wake(ctx context.Context) error {
	for _, r := range s.sleepers {
		if err := r.quiet.set(ctx, false, func() error { return s.store.SetSettings(ctx, r.id, push.Settings{}) }); err != nil {
			return err
		}
	}
	return nil
}
