package main

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// plainSite is a site on which reads are compared with plain SQL. All members have uploaded,
// at moments that are evenly spread. Only contacts of the viewers have photos, as no
// way looks at others: the key on last_upload is as large as that of a real site, all other
// tables are smaller, which favours plain SQL.
type plainSite struct {
	members int // a multiple of a thousand
	viewers []plainCase
}

// plainCase is a viewer whose contacts are evenly spread over a part of the members, who
// are numbered by their latest upload: 0 uploaded last.
type plainCase struct {
	id          member.ID
	name        string
	contacts    int
	first, span int // the part
}

const (
	plainPhotos = 5          // of each contact, of which the newest is public
	uploadSpan  = 50_000_000 // seconds from the first member's latest upload to that of the last one
	// A member's place by latest upload is its number times rankFactor, modulo the members: places
	// are in no order of the ids.
	rankFactor = 6_180_339
)

// newPlainSite makes a viewer of each kind for each number of contacts.
func newPlainSite(members int, counts []int) plainSite {
	s := plainSite{members: members}
	add := func(kind string, n, first, span int) {
		s.viewers = append(s.viewers, plainCase{member.ID(len(s.viewers) + 1), fmt.Sprintf("%d %s", n, kind), n, first, span})
	}
	for _, n := range counts {
		if n >= members { // there is only one way to have them
			add("contacts, all members", members, 0, members)
			continue
		}
		add("active contacts", n, 0, n)
		add("mixed contacts", n, 0, members)
		add("quiet contacts", n, members/2, members/2)
	}
	return s
}

// numberFactor is the inverse of rankFactor: a place times it is the number of the member.
func (s plainSite) numberFactor() int64 {
	modulus := big.NewInt(int64(s.members))
	return new(big.Int).ModInverse(big.NewInt(rankFactor), modulus).Int64()
}

func (s plainSite) statements() []loading {
	const page = 1000 // members that are made for each number
	list := append(numbersBelow(max(s.members/page, s.viewers[len(s.viewers)-1].contacts)+1), loading{
		"checks of keys off, as all rows are new", "SET SESSION unique_checks = 0, foreign_key_checks = 0", nil,
	}, loading{
		fmt.Sprintf("%d members", s.members), "INSERT INTO users (id, last_upload)" +
			" SELECT ? + a.n * ? + b.n, ? - MOD((a.n * ? + b.n) * ?, ?) * ? FROM numbers a STRAIGHT_JOIN numbers b WHERE a.n < ? AND b.n < ?",
		[]any{firstMember, page, epoch, page, rankFactor, s.members, uploadSpan / s.members, s.members / page, page},
	})
	for _, v := range s.viewers {
		list = append(list, loading{
			"a viewer with " + v.name, "INSERT INTO users (id) VALUES (?)", []any{v.id},
		}, loading{
			"these", "INSERT INTO contacts (user_id, contact_id)" +
				" SELECT ?, ? + MOD((? + (2 * n + 1) * ? DIV ?) * ?, ?) FROM numbers WHERE n < ?",
			[]any{v.id, firstMember, v.first, v.span, 2 * v.contacts, s.numberFactor(), s.members, v.contacts},
		}, loading{
			"older photos of the one that uploaded last", "INSERT INTO photos (owner_id, visibility, date_upload)" +
				" SELECT u.id, 'public', u.last_upload - (? + n) * 86400 FROM users u JOIN numbers ON n < ? WHERE u.id = ? + MOD(? * ?, ?)",
			[]any{plainPhotos, shown, firstMember, v.first + v.span/(2*v.contacts), s.numberFactor(), s.members},
		})
	}
	return append(list, loading{
		"their photos", "INSERT INTO photos (owner_id, visibility, date_upload) SELECT u.id, ELT(1 + k.n, 'public', 'friends', 'public', 'private', 'public')," +
			" u.last_upload - k.n * 86400 FROM (SELECT DISTINCT contact_id FROM contacts) c JOIN users u ON u.id = c.contact_id JOIN numbers k ON k.n < ?",
		[]any{plainPhotos},
	}, loading{"checks on again", "SET SESSION unique_checks = 1, foreign_key_checks = 1", nil}, loading{"numbers dropped", "DROP TABLE numbers", nil})
}

// onPlainSite runs do on such a site, on servers of its own, with the key of the demo's statement.
func (s *suite) onPlainSite(ctx context.Context, plain plainSite, do func(*suite) error) (err error) {
	own := *s
	if own.backend, err = newBackend(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	own.store = contacts.NewMySQL(own.db)
	if err := load(ctx, own.backend, plain.statements(), s.out); err != nil {
		return err
	}
	if err := site.AddLastUploadKey(ctx, own.db); err != nil {
		return err
	}
	if _, err := own.db.ExecContext(ctx, "ANALYZE TABLE users, contacts, photos"); err != nil {
		return err
	}
	var viewers []member.ID
	for _, v := range plain.viewers {
		viewers = append(viewers, v.id)
	}
	if err := own.fill(ctx, viewers); err != nil {
		return err
	}
	if own.meter, err = newMeter(ctx, own.backend, own.client); err != nil {
		return err
	}
	return do(&own)
}

// benchPlain compares reads with plain SQL on a site of an ordinary size.
func (s *suite) benchPlain(ctx context.Context) error {
	return s.besidePlain(ctx, s.options.members[0])
}

// benchLarge is benchPlain on a large site.
func (s *suite) benchLarge(ctx context.Context) error {
	return s.besidePlain(ctx, s.options.members[1])
}

func (s *suite) besidePlain(ctx context.Context, members int) error {
	const ours = "activityd"
	plain := newPlainSite(members, s.options.circlesOf)
	part := fmt.Sprintf("Plain SQL beside a read, on a site of %d members", members)
	return s.onPlainSite(ctx, plain, func(s *suite) error {
		ways := []struct {
			name string
			ask  query
		}{{"contacts first", s.plainly(site.ContactsFirst)}, {"members by latest upload", s.plainly(site.MembersFirst)}, {ours, s.read()}}
		for _, v := range plain.viewers {
			var list []contender
			for _, w := range ways {
				list = append(list, s.repeated(w.name, v.id, w.ask))
			}
			all, err := s.runs(ctx, list)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			for _, w := range ways {
				of := all[w.name]
				f := figure{
					Part: part, Name: v.name + ": " + w.name, Unit: "ms", Value: of.spread(atQuantile(0.5)), P99: of.spread(atQuantile(0.99)),
					Each: of.expense(),
				}
				if w.name != ours {
					f.Against, f.Ratio = v.name+": "+ours, of.over(all[ours], atQuantile(0.5))
				}
				s.results.add(f)
			}
		}
		return nil
	})
}

// plainly asks by one of the demo's statements, which are exact.
func (s *suite) plainly(text string) query {
	return func(ctx context.Context, v contacts.Viewer) error {
		album, err := site.AskPlainly(ctx, s.db, text, v, shown)
		if err == nil && len(album.Photos) == 0 {
			err = fmt.Errorf("viewer %s was shown nothing", v.ID)
		}
		return err
	}
}

// repeated is a contender that asks for a viewer again and again, and times each: as often as the
// options say, or as their time allows, and at least once.
func (s *suite) repeated(name string, viewer member.ID, ask query) contender {
	var times []float64
	run := func(ctx context.Context) (int, error) {
		times = nil
		for start := time.Now(); len(times) == 0 || len(times) < s.options.reads && time.Since(start) < s.options.plain; {
			began := time.Now()
			if err := ask(ctx, contacts.Viewer{ID: viewer}); err != nil {
				return len(times), err
			}
			times = append(times, milliseconds(time.Since(began)))
		}
		return len(times), nil
	}
	return contender{name: name, run: run, times: func() []float64 { return slices.Clone(times) }}
}
