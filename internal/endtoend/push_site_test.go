package endtoend_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/push/apns/apnstest"
	"github.com/activityd/activityd/internal/push/webpush"
	"github.com/activityd/activityd/internal/push/webpush/webpushtest"
	"github.com/activityd/activityd/internal/site"
)

// Who lives on a site with push. Of the recipients, every third one is restless: it opts
// out, mutes the first actor, and has devices that come and go. The others change nothing.
const (
	pushActors     = 6
	pushRecipients = 60
	firstRecipient = member.ID(101)
	mutedActor     = member.ID(1)
	restlessType   = "fave" // what the restless opt out of
)

// pushSite is a site whose members are notified, the push services that reach them, and
// what the test knows of both.
type pushSite struct {
	*ground
	store      *push.MySQL   // the site's own way to change devices and settings
	producer   *redis.Client // the site's own way to the stream
	apns       *apnstest.Server
	web        *webpushtest.Server
	senders    []string // settings of activityd, for these push services
	recipients []*recipient
	byKey      map[string]*pushDevice // by token, or id of the subscription
	photos     map[member.ID]*photo   // by actor: each has one
	faults     *lossyServices

	mu   sync.Mutex
	byID map[uint64]*pushDevice
	sent map[string]*sentEvent // by id
}

// recipient is a member that is notified.
type recipient struct {
	id       member.ID
	restless bool
	follows  map[member.ID]bool // actors
	friendOf map[member.ID]bool // actors who call it a friend
	devices  []*pushDevice
	wants    *timeline[bool] // events of restlessType
	muted    *timeline[bool] // mutedActor
}

// pushDevice is a phone or a browser.
type pushDevice struct {
	id      uint64 // the first one; latest is that of now
	latest  uint64
	member  *recipient
	address push.Address
	of      push.Platform
	live    *timeline[bool] // it is registered
}

// photo is one whose visibility changes. Its owner's username says which one it has, by the
// same transaction: a title that is the username as of the last look tells what that saw.
type photo struct {
	id      uint64
	owner   member.ID
	class   *timeline[contacts.Visibility]
	version int
}

func (p *photo) username(class contacts.Visibility) string {
	return fmt.Sprintf("actor-%s %s %d", p.owner, class, p.version)
}

// classIn returns the visibility that a title tells of; "" if it tells of none.
func classIn(title string) contacts.Visibility {
	if words := strings.Fields(title); len(words) > 2 && strings.HasPrefix(title, "actor-") {
		return contacts.Visibility(words[1])
	}
	return ""
}

func (r *recipient) sees(owner member.ID, class contacts.Visibility) bool {
	return class == contacts.Public || class == contacts.Friends && r.friendOf[owner]
}

// newPushSite loads members, contacts, photos and devices. What is random depends on the seed.
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
		p := &photo{id: uint64(i) + 1, owner: i + 1, class: newTimeline(contacts.Public)}
		s.photos[p.owner] = p
		members = append(members, site.Member{ID: p.owner, Username: p.username(contacts.Public)})
		photos = append(photos, site.Photo{Owner: p.owner, Visibility: contacts.Public, DateUpload: start})
	}
	for i := range member.ID(pushRecipients) {
		r := &recipient{
			id: firstRecipient + i, restless: i%3 == 0, follows: make(map[member.ID]bool), friendOf: make(map[member.ID]bool),
			wants: newTimeline(true), muted: newTimeline(false),
		}
		s.recipients = append(s.recipients, r)
		members = append(members, site.Member{ID: r.id, Username: "recipient " + r.id.String()})
		for actor := range s.photos {
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
		if i%2 == 0 {
			s.addDevice(t, r, webpush.Platform)
		}
	}
	// What was put into the queue, written down by the very transaction that did. A task that comes back is inserted again.
	g.exec(t, "CREATE TABLE notified (id VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, task_id BIGINT UNSIGNED PRIMARY KEY)")
	g.exec(t, "CREATE TRIGGER note_event AFTER INSERT ON tasks FOR EACH ROW IF NEW.type = 'notify' THEN INSERT IGNORE INTO notified"+
		" VALUES (COALESCE(JSON_UNQUOTE(JSON_EXTRACT(NEW.args, '$.id')), CONCAT('task-', NEW.id)), NEW.id); END IF")
	return s
}

// startServices starts the push services, and writes the keys for them.
func (s *pushSite) startServices(t *testing.T) {
	t.Helper()
	s.apns = apnstest.Start(t)
	var err error
	s.web, err = webpushtest.Start(webpushtest.Options{})
	must(t, err)
	t.Cleanup(s.web.Close)
	s.faults = newLossyServices(s.apns, s.web)
	vapid, err := webpush.GenerateKey()
	must(t, err)
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	s.senders = []string{
		"ACTIVITYD_APNS_KEY=" + write("apns.p8", s.apns.Key()), "ACTIVITYD_APNS_KEY_ID=" + s.apns.KeyID(), "ACTIVITYD_APNS_TEAM_ID=" + s.apns.TeamID(),
		"ACTIVITYD_APNS_TOPIC=" + s.apns.Topic(), "ACTIVITYD_APNS_URL=" + s.apns.URL(),
		"ACTIVITYD_WEBPUSH_KEY=" + write("vapid.pem", vapid.PEM), "ACTIVITYD_WEBPUSH_SUBJECT=mailto:ops@example.com", "ACTIVITYD_WEBPUSH_ALLOW=127.0.0.1/32",
		"ACTIVITYD_TLS_ROOTS=" + write("roots.pem", slices.Concat(s.apns.RootsPEM(), s.web.RootPEM())),
	}
}

func (s *pushSite) addDevice(t *testing.T, r *recipient, of push.Platform) {
	t.Helper()
	d := &pushDevice{member: r, of: of, live: newTimeline(true)}
	if of == apns.Platform {
		token := make([]byte, 32)
		_, _ = rand.Read(token) // it never fails
		key := hex.EncodeToString(token)
		d.address = apns.NewAddress(key, false)
		s.byKey[key] = d
	} else {
		subscription, err := s.web.Subscribe("")
		must(t, err)
		d.address = webpush.NewAddress(subscription.Endpoint(), subscription.P256DH(), subscription.Auth())
		s.byKey[subscription.ID()] = d
	}
	must(t, s.register(t.Context(), d))
	d.id = d.latest
	r.devices = append(r.devices, d)
}

// register registers a device. One that had been removed is another one then.
func (s *pushSite) register(ctx context.Context, d *pushDevice) error {
	stored, err := s.store.Register(ctx, d.member.id, d.of, d.address)
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
	switch rnd.IntN(3) {
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
	default:
		d := r.devices[rnd.IntN(len(r.devices))]
		live := rnd.IntN(2) == 0
		return d.live.set(ctx, live, func() error {
			if !live {
				_, err := s.store.Remove(ctx, r.id, d.latest)
				return err
			}
			return s.register(ctx, d)
		})
	}
}

// changePhoto gives a photo another visibility, and its owner a username that says so.
func (s *pushSite) changePhoto(ctx context.Context, p *photo, rnd *mathrand.Rand) error {
	class := []contacts.Visibility{contacts.Public, contacts.Friends, contacts.Private}[rnd.IntN(3)]
	p.version++
	return p.class.set(ctx, class, func() error {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := p.write(ctx, tx, class); err != nil {
			_ = tx.Rollback() // err says what matters
			return err
		}
		return tx.Commit()
	})
}

func (p *photo) write(ctx context.Context, tx *sql.Tx, class contacts.Visibility) error {
	if _, err := tx.ExecContext(ctx, "UPDATE users SET username = ? WHERE id = ?", p.username(class), p.owner); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE photos SET visibility = ? WHERE id = ?", string(class), p.id)
	return err
}
