package main

import (
	"context"
	"fmt"
	"math/big"
	"time"
)

// The made-up site. All members have uploaded, at moments that are evenly spread, five photos
// each, of which the newest is public. The first members are readers: they have contacts, and
// follow the uploader. Viewers with a given number of contacts have no photos. The contacts of a
// viewer with active contacts are the members that uploaded last. The contacts of a viewer with
// quiet contacts are members of the less recent half.
const (
	firstMember  = 1_000_001 // ids of seven digits, as on a site of some millions
	uploader     = 501
	hider        = 601 // whose newest photos are private
	hidersViewer = 602
	shown        = 10 // photos that a read asks for
	photosOfEach = 5
	circle       = 20            // contacts of a reader, beside the uploader
	stars        = 12            // as many as a set holds
	epoch        = 1_700_000_000 // the latest upload of a member; the uploader's and the hider's come later
	uploadSpan   = 50_000_000    // seconds from a member's latest upload to the first
	rankFactor   = 6_180_337     // coprime to the members: a member's place by latest upload is its number times that, modulo the members
)

// viewer is a viewer whose reads are compared.
type viewer struct {
	id          int
	name        string
	contacts    int
	first, span int // the part of the members, by latest upload, over which the contacts are evenly spread
}

func (s size) viewers() (list []viewer) {
	add := func(kind string, n, first, span int) {
		list = append(list, viewer{len(list) + 1, fmt.Sprintf("%d %s contacts", n, kind), n, first, span})
	}
	for _, n := range s.contacts {
		if n >= s.members { // a viewer can have all members only in a single way
			add("active and quiet", s.members, 0, s.members)
			continue
		}
		add("active", n, 0, n)
		add("quiet", n, s.members/2, s.members/2)
	}
	return list
}

// statement makes a part of the site.
type statement struct {
	text string
	args []any
}

func (s size) statements() []statement {
	// The inverse of rankFactor: a place times it is the number of the member.
	numberOf := new(big.Int).ModInverse(big.NewInt(rankFactor), big.NewInt(int64(s.members))).Int64()
	count := max(s.members, s.private, 1000) + 1
	const contacts, photos = "INSERT INTO contacts (user_id, contact_id) ", "INSERT INTO photos (owner_id, visibility, date_upload) "
	list := []statement{
		{"CREATE TABLE numbers (n BIGINT PRIMARY KEY) ENGINE=InnoDB", nil},
		{"INSERT INTO numbers WITH RECURSIVE r (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM r WHERE i < 999) SELECT i FROM r", nil},
		{
			"INSERT INTO numbers SELECT a.n * 1000 + b.n FROM numbers a JOIN numbers b WHERE a.n BETWEEN 1 AND ? AND a.n * 1000 + b.n < ?",
			[]any{count / 1000, count},
		},
		{
			"INSERT INTO users (id, username, last_upload) SELECT ? + n, CONCAT('member', n), ? - MOD(n * ?, ?) * ? FROM numbers WHERE n < ?",
			[]any{firstMember, epoch, rankFactor, s.members, uploadSpan / s.members, s.members},
		},
		{
			"INSERT INTO users (id, username, last_upload) VALUES (?, 'uploader', ?), (?, 'hider', ?), (?, 'viewer', NULL)",
			[]any{uploader, epoch + 10_000_000, hider, epoch + 1_000_000, hidersViewer},
		},
		{
			contacts + "SELECT ? + m.n, ? + MOD(m.n * 31 + k.n * ?, ?) FROM numbers m JOIN numbers k ON k.n < ? WHERE m.n < ?",
			[]any{firstMember, firstMember, s.members/circle + 1, s.members, circle, s.readers},
		},
		{contacts + "SELECT ? + n, ? FROM numbers WHERE n < ?", []any{firstMember, uploader, s.readers}},
		{contacts + "SELECT ?, ? + n FROM numbers WHERE n < ? UNION ALL SELECT ?, ?", []any{hidersViewer, firstMember, stars, hidersViewer, hider}},
		{
			photos + "SELECT u.id, ELT(1 + k.n, 'public', 'friends', 'public', 'private', 'public'), u.last_upload - k.n * 86400" +
				" FROM users u JOIN numbers k ON k.n < ? WHERE u.id >= ?", []any{photosOfEach, firstMember},
		},
		{
			photos + "SELECT u.id, 'public', u.last_upload - n FROM users u JOIN numbers ON n < ? WHERE u.id IN (?, ?)",
			[]any{shown, uploader, hider},
		},
		{photos + "SELECT ?, 'private', ? + n FROM numbers WHERE n BETWEEN 1 AND ?", []any{hider, epoch + 1_000_000, s.private}},
	}
	for _, v := range s.viewers() {
		list = append(list, statement{"INSERT INTO users (id, username) VALUES (?, 'viewer')", []any{v.id}}, statement{
			contacts + "SELECT ?, ? + MOD((? + (2 * n + 1) * ? DIV ?) * ?, ?) FROM numbers WHERE n < ?",
			[]any{v.id, firstMember, v.first, v.span, 2 * v.contacts, numberOf, s.members, v.contacts},
		})
	}
	return append(list, statement{"CREATE INDEX last_upload ON users (last_upload)", nil}, // for plain SQL
		statement{"ANALYZE TABLE users, contacts, photos", nil}, statement{"DROP TABLE numbers", nil})
}

// makeSite fills the tables and builds the sets, once for all parts.
func (b *bench) makeSite(ctx context.Context) error {
	if b.site {
		return nil
	}
	start := time.Now()
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, s := range b.size.statements() {
		if _, err := conn.ExecContext(ctx, s.text, s.args...); err != nil {
			return fmt.Errorf("make the site: %s: %w", s.text, err)
		}
	}
	if err := b.command(ctx, "backfill"); err != nil {
		return err
	}
	fmt.Fprintf(b.log, "  the site took %.0f s\n", time.Since(start).Seconds())
	b.site = true
	return nil
}
