package mapping_test

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// row is a row of a site's table. NULL is "", which no site has.
type row map[string]string

func (r row) number(column string) int64 {
	n, err := strconv.ParseInt(r[column], 10, 64)
	if err != nil {
		panic("column " + column + " is " + r[column])
	}
	return n
}

func (r row) yes(column string) bool  { return r[column] != "0" && r[column] != "" }
func (r row) null(column string) bool { return r[column] == "" }

// seconds is a DATETIME of UTC in unix seconds, from 0 on.
func (r row) seconds(column string) int64 {
	at, err := time.Parse(time.DateTime, r[column][:len(time.DateTime)])
	if err != nil {
		panic(err)
	}
	return max(0, at.Unix())
}

type pair struct{ user, other int64 }

type grant struct{ friend, family bool }

type photo struct {
	owner      int64
	title      string
	visibility string // "" is none of activityd's words
	date       int64
}

func (p photo) isSeen() bool { return p.visibility != "private" && p.visibility != "" }

// world is the meaning of a site's tables, by the plain rules of the site.
type world struct {
	members  map[int64]string
	contacts map[pair]grant
	blocks   map[pair]bool
	photos   map[int64]photo
}

func newWorld() world {
	return world{make(map[int64]string), make(map[pair]grant), make(map[pair]bool), make(map[int64]photo)}
}

func (w world) member(id int64, name string) {
	if id > 0 {
		w.members[id] = name
	}
}

func (w world) contact(user, other int64, friend, family bool) {
	if user > 0 && other > 0 {
		g := w.contacts[pair{user, other}]
		w.contacts[pair{user, other}] = grant{g.friend || friend, g.family || family}
	}
}

func (w world) block(user, other int64) {
	if user > 0 && other > 0 {
		w.blocks[pair{user, other}] = true
	}
}

func (w world) photo(id int64, p photo) {
	if id > 0 && p.owner > 0 && p.date >= 0 {
		w.photos[id] = p
	}
}

// aSite is a kind of site.
type aSite struct {
	tables, description string
	users, id           string // the table of members, and the column of their ids, as of photos
	lastUpload          string // the column of members
	// values are the possible values of the columns of a table, in SQL.
	values map[string]map[string][]string
	// means returns the meaning of all tables.
	means func(rows map[string][]row, w world)
}

func list(values ...string) []string { return values }

var (
	people = list("1", "2", "3", "4")
	dates  = list("'1969-12-31 23:00:00'", "'1970-01-01 00:00:05'", "'1970-01-01 00:00:10'", "'1970-01-01 00:00:15'", "'2013-03-19 03:57:12'")
	gone   = list("NULL", "NULL", "'2020-01-01 00:00:00'")
	bits   = list("0", "1")
)

// example is the site of examples/site.
func example(t *testing.T) aSite {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile("../../examples/site/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return aSite{
		tables: read("tables.sql"), description: read("site.map"), users: "members", id: "id", lastUpload: "last_upload",
		values: map[string]map[string][]string{
			"members":     {"id": people, "nick": list("NULL", "'ada'"), "deleted_at": gone},
			"friendships": {"asked_by": people, "asked": people, "state": list("0", "1", "1", "2"), "is_family": bits},
			"bans":        {"owner": people, "banned": people},
			"pictures":    {"id": people, "owner": people, "caption": list("NULL", "'x'"), "privacy": list("0", "1", "2", "3", "4", "9"), "created_at": dates, "deleted_at": gone},
		},
		means: func(rows map[string][]row, w world) {
			for _, r := range rows["members"] {
				if r.null("deleted_at") {
					w.member(r.number("id"), r["nick"])
				}
			}
			for _, r := range rows["friendships"] {
				if r["state"] == "1" {
					w.contact(r.number("asked_by"), r.number("asked"), true, r.yes("is_family"))
					w.contact(r.number("asked"), r.number("asked_by"), true, r.yes("is_family"))
				}
			}
			for _, r := range rows["bans"] {
				w.block(r.number("owner"), r.number("banned"))
			}
			for _, r := range rows["pictures"] {
				word := map[string]string{"1": "friends", "2": "family", "3": "friends_family", "4": "public"}[r["privacy"]]
				if word == "" {
					word = "private"
				}
				if r.null("deleted_at") {
					w.photo(r.number("id"), photo{r.number("owner"), r["caption"], word, r.seconds("created_at")})
				}
			}
		},
	}
}

// sites are two further kinds.
var sites = map[string]aSite{
	"words of its own, signed seconds": {
		tables: `
CREATE TABLE site.people (no BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(20) NOT NULL DEFAULT '');
CREATE TABLE site.follows (who BIGINT UNSIGNED NOT NULL, whom BIGINT UNSIGNED NOT NULL, friend BOOLEAN NOT NULL, family BOOLEAN NOT NULL, PRIMARY KEY (who, whom));
CREATE TABLE site.images (no BIGINT UNSIGNED NOT NULL PRIMARY KEY, who BIGINT UNSIGNED NOT NULL, seen_by VARCHAR(20) NULL, at BIGINT NULL, deleted TINYINT NULL)`,
		description: `
database = activityd
[users]
table = site.people
id = no
username = name
last_upload = newest
[contacts]
table = site.follows
user_id = who
contact_id = whom
is_friend = friend
is_family = family
[blocks]
table = none
[photos]
table = site.images
id = no
owner_id = who
visibility = seen_by
date_upload = at
where = deleted IS NULL`,
		users: "people", id: "no", lastUpload: "newest",
		values: map[string]map[string][]string{
			"people":  {"no": people, "name": list("'a'", "'b'")},
			"follows": {"who": people, "whom": people, "friend": bits, "family": list("0", "0", "2")},
			"images": {
				"no": people, "who": people, "seen_by": list("NULL", "'private'", "'friends'", "'family'", "'friends_family'", "'followers'", "'public'", "'friends of friends'"),
				"at": list("NULL", "-5", "0", "5", "6", "7", "4000000000"), "deleted": list("NULL", "NULL", "1"),
			},
		},
		means: func(rows map[string][]row, w world) {
			for _, r := range rows["people"] {
				w.member(r.number("no"), r["name"])
			}
			for _, r := range rows["follows"] {
				w.contact(r.number("who"), r.number("whom"), r.yes("friend"), r.yes("family"))
			}
			for _, r := range rows["images"] {
				if r.null("deleted") && !r.null("at") {
					word := r["seen_by"]
					if word == "friends of friends" { // is none of activityd's, and too long for its column
						word = ""
					}
					w.photo(r.number("no"), photo{r.number("who"), "", word, r.number("at")})
				}
			}
		},
	},
	"contacts in two tables, states, signed ids, milliseconds": {
		tables: `
CREATE TABLE site.accounts (id BIGINT NOT NULL PRIMARY KEY, login VARCHAR(20) NULL, status VARCHAR(10) NOT NULL);
CREATE TABLE site.links (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, src BIGINT NOT NULL, dst BIGINT NOT NULL, state VARCHAR(10) NULL, level INT NOT NULL, KEY (src, dst));
CREATE TABLE site.friend (a INT NOT NULL, b INT NOT NULL, family INT NULL, PRIMARY KEY (a, b));
CREATE TABLE site.mutes (src BIGINT NOT NULL, dst BIGINT NOT NULL, active TINYINT NULL, PRIMARY KEY (src, dst));
CREATE TABLE site.posts (id BIGINT NOT NULL PRIMARY KEY, author BIGINT NOT NULL, ` + "`order`" + ` TEXT NULL, audience VARCHAR(10) NULL, created BIGINT NULL, status VARCHAR(10) NOT NULL)`,
		description: `
database = activityd
[users]
table = site.accounts
id = id
username = login
last_upload = last_upload
where = status IN ('active', 'away')
[contacts]
table = site.links
user_id = src
contact_id = dst
is_friend = level & 1 <> 0
is_family = level & 2
where = state = 'on'
[contacts]
table = site.friend
user_id = a
contact_id = b
is_friend = TRUE
[contacts]
table = site.friend
user_id = b
contact_id = a
is_friend = TRUE
is_family = family > 1
[blocks]
table = site.mutes
user_id = src
blocked_id = dst
where = NOT active IS NULL AND active <> 0
[photos]
table = site.posts
id = id
owner_id = author
title = ` + "`order`" + `
public = audience = 'everyone'
friends = audience = 'it''s me' OR audience = 'friends'
date_upload = created
date_type = milliseconds
where = status <> 'trash'`,
		users: "accounts", id: "id", lastUpload: "last_upload",
		values: map[string]map[string][]string{
			"accounts": {"id": list("-1", "0", "1", "2", "3"), "login": list("NULL", "'l'"), "status": list("'active'", "'away'", "'shut'")},
			"links":    {"src": list("-1", "0", "1", "2", "3"), "dst": list("-1", "1", "2", "3"), "state": list("NULL", "'on'", "'on'", "'off'"), "level": list("0", "1", "2", "3")},
			"friend":   {"a": people, "b": list("-1", "1", "2", "3"), "family": list("NULL", "0", "1", "2")},
			"mutes":    {"src": list("-1", "1", "2"), "dst": list("-1", "1", "2"), "active": list("NULL", "0", "1")},
			"posts": {
				"id": list("1", "2", "3", "4"), "author": list("-1", "1", "2", "3"), "`order`": list("NULL", "'b'"), "status": list("'live'", "'live'", "'trash'"),
				"audience": list("NULL", "'everyone'", "'friends'", "'it''s me'", "'none'"), "created": list("NULL", "-5000", "0", "999", "5000", "6999", "1363665432000"),
			},
		},
		means: func(rows map[string][]row, w world) {
			for _, r := range rows["accounts"] {
				if r["status"] != "shut" {
					w.member(r.number("id"), r["login"])
				}
			}
			for _, r := range rows["links"] {
				if r["state"] == "on" {
					w.contact(r.number("src"), r.number("dst"), r.number("level")&1 != 0, r.number("level")&2 != 0)
				}
			}
			for _, r := range rows["friend"] {
				w.contact(r.number("a"), r.number("b"), true, false)
				w.contact(r.number("b"), r.number("a"), true, r["family"] == "2")
			}
			for _, r := range rows["mutes"] {
				if r.yes("active") {
					w.block(r.number("src"), r.number("dst"))
				}
			}
			for _, r := range rows["posts"] {
				word := map[string]string{"everyone": "public", "friends": "friends", "it's me": "friends"}[r["audience"]]
				if word == "" {
					word = "private"
				}
				date := int64(0)
				if !r.null("created") {
					date = max(0, r.number("created")/1000)
				}
				if r["status"] != "trash" {
					w.photo(r.number("id"), photo{r.number("author"), r["order"], word, date})
				}
			}
		},
	},
}
