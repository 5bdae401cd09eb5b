package check

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// Against compares a site's own statement with the definition of the read. All fields are required.
type Against struct {
	DB        *sql.DB // of a single connection: its session gets the time limit. The right SELECT is enough
	Statement Statement
	Limit     int           // photos
	Timeout   time.Duration // of each statement, on the server
}

// Statement is a site's own statement. Its first column is the id of a photo that a viewer is shown.
type Statement struct {
	text  string   // with a question mark for each placeholder
	names []string // of the placeholders, in order
}

var (
	startsRead = regexp.MustCompile(`(?i)^[\s(]*(select|with)\b`)
	// token is a string, a quoted name, a comment, a placeholder, a word, or any character.
	token = regexp.MustCompile(`(?s)'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|` + "`[^`]*`" + `|#[^\n]*|--(?:\n|$|[\x00-\x20\x7f][^\n]*)|/\*.*?\*/|:?\w+|.`)
	// refused are tokens that a statement must not have: further placeholders and statements, quotes that are not closed,
	// comments that servers obey, and words that lock or write. A transaction that is read-only refuses other writes.
	refused = regexp.MustCompile("(?is)^(" + `\?|:\w.*|;|['"` + "`]" + `|/\*M?!.*|/\*\+.*(max_execution_time|set_var).*|into|update|share|lock|get_lock|nextval)$`)
)

// ParseStatement reads a statement: one SELECT with the placeholders :viewer, at least once, and :limit.
func ParseStatement(text string) (s Statement, err error) {
	text = strings.TrimRight(text, "; \t\r\n")
	if !startsRead.MatchString(text) {
		return s, fmt.Errorf("begins with %.20q: want a SELECT", text)
	}
	s.text = token.ReplaceAllStringFunc(text, func(t string) string {
		switch {
		case t == ":viewer", t == ":limit":
			s.names = append(s.names, t)
			return "?"
		case refused.MatchString(t):
			err = errors.Join(err, fmt.Errorf("has %.40s: want one SELECT with :viewer and :limit that neither locks nor writes; "+
				"quote with backticks what is a name", t))
		}
		return t
	})
	if err == nil && !slices.Contains(s.names, ":viewer") {
		err = errors.New("has no :viewer: want :viewer, without quotes, where the id of the member belongs")
	}
	return s, err
}

// Sample returns n members at most with ids from first to last, by chance.
func (a *Against) Sample(ctx context.Context, first, last member.ID, n int) ([]member.ID, error) {
	ids, err := mysql.Select(ctx, a.DB, mysql.Column[member.ID], "SELECT id FROM users WHERE id BETWEEN ? AND ? ORDER BY RAND() LIMIT ?", first, last, n)
	return ids, mysql.Translate(ctx, "choose a sample of the members", err)
}

// Difference is an answer of the site that is not the due answer.
type Difference struct {
	Class  Class     `json:"class"`
	Viewer member.ID `json:"viewer"`
	Photo  uint64    `json:"photo,string"` // the first that shows the difference
	Owner  member.ID `json:"owner"`        // its owner; 0: no photo has the id
	Ours   []string  `json:"ours"`         // the ids of the photos, in their order
	Theirs []string  `json:"theirs"`
}

// Compare compares both answers for a viewer, in one snapshot; nil means that they are the same. It fails with
// [contacts.ErrNoMember], and as [mysql.Translate] says.
func (a *Against) Compare(ctx context.Context, viewer member.ID) (*Difference, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*a.Timeout) // a server that hangs ends no statement
	defer cancel()
	tx, err := a.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, mysql.Translate(ctx, "begin a snapshot", err)
	}
	defer func() { _ = tx.Rollback() }() // it only read
	theirs, err := a.theirs(ctx, tx, viewer)
	if err != nil {
		return nil, err
	}
	snapshot, v := contacts.NewSnapshot(tx), contacts.Viewer{ID: viewer}
	due, err := snapshot.Walk(ctx, v, a.Limit)
	if err != nil {
		return nil, err
	}
	ours := make([]uint64, len(due.Photos))
	for i, p := range due.Photos {
		ours[i] = p.ID
	}
	if slices.Equal(ours, theirs) {
		return nil, nil //nolint:nilnil // as the comment says
	}
	list, err := snapshot.Sightings(ctx, v, slices.Compact(slices.Sorted(slices.Values(slices.Concat(ours, theirs)))))
	seen := make(sightings, len(list))
	for _, s := range list {
		seen[s.Photo] = s
	}
	class, photo := seen.classify(ours, theirs)
	return &Difference{class, viewer, photo, seen[photo].Owner, texts(ours), texts(theirs)}, err
}

func texts(ids []uint64) []string { return strings.Fields(strings.Trim(fmt.Sprint(ids), "[]")) }

// theirs runs the site's statement, and returns the photos that it has first.
func (a *Against) theirs(ctx context.Context, tx *sql.Tx, viewer member.ID) ([]uint64, error) {
	// Both servers know max_sort_length, here with its default.
	_, err := tx.ExecContext(ctx, fmt.Sprintf("SET max_sort_length = 1024 /*!80013 , max_execution_time = %d */ /*M!100600 , max_statement_time = %.3f */",
		a.Timeout.Milliseconds(), a.Timeout.Seconds()))
	if err != nil {
		return nil, mysql.Translate(ctx, "set the time limit", err)
	}
	args := make([]any, len(a.Statement.names))
	for i, name := range a.Statement.names {
		if args[i] = any(a.Limit); name == ":viewer" {
			args[i] = uint64(viewer)
		}
	}
	start := time.Now()
	ids, err := mysql.Select(ctx, tx, firstColumn, a.Statement.text, args...)
	if mysql.IsTooSlow(err) || time.Since(start) >= a.Timeout { // MySQL ends a SLEEP without an error
		return nil, fmt.Errorf("your statement takes longer than %v", a.Timeout)
	}
	return ids[:min(len(ids), a.Limit)], mysql.Translate(ctx, "your statement, whose first column is to be the id of a photo", err)
}

func firstColumn(rows *sql.Rows) (id uint64, err error) {
	columns, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	into := make([]any, len(columns))
	for i := range into {
		into[i] = new(sql.RawBytes)
	}
	into[0] = &id
	return id, rows.Scan(into...)
}

// Class is how two answers differ. Why ours hides a photo is a fact. Why theirs hides it is in the site's statement: the
// class names a reason that the tables have.
type Class string

// Meanings are the classes in words.
var Meanings = map[Class]string{
	"hidden_by_theirs_visibility": "ours shows the photo; it is not public",
	"hidden_by_theirs_relation":   "ours shows the photo; the owner does not call the viewer a contact",
	"hidden_by_theirs_condition":  "ours shows the photo; nothing in the tables is against it: the site has a condition of its own, such as deletion, or --limit is not its limit",
	"hidden_by_ours_block":        "theirs shows the photo, and one of the two members blocks the other",
	"hidden_by_ours_relation":     "theirs shows the photo, and the owner is no contact of the viewer",
	"hidden_by_ours_visibility":   "theirs shows the photo, and the viewer is not in its visibility",
	"hidden_by_ours_deleted":      "theirs shows the photo, and there is no row of it, or of its owner",
	"hidden_by_ours_last_upload":  "theirs shows the photo, and users.last_upload of the owner is earlier",
	"another_contact":             "both may be shown, and theirs chooses another contact, or several",
	"another_order":               "the same photos, and theirs is not in the order of dates, or has one twice",
	"order_of_equals":             "the same but for photos of one second, of which ours has the higher id first",
	"unexplained":                 "ours should show the photo: please report it",
}

// sightings are the facts in the tables about each photo of both answers, at one instant.
type sightings map[uint64]contacts.Sighting

// classify says how theirs differs from ours, and names the first photo that shows it.
func (seen sightings) classify(ours, theirs []uint64) (_ Class, photo uint64) {
	for i, id := range theirs {
		switch {
		case seen[id].Hidden != "":
			return Class("hidden_by_ours_" + seen[id].Hidden), id
		case slices.Contains(theirs[:i], id):
			return "another_order", id
		}
	}
	if len(theirs) == 0 {
		return seen.hiddenByTheirs(ours[0]), ours[0]
	}
	newest := slices.MaxFunc(theirs, func(a, b uint64) int { return cmp.Compare(seen[a].DateUpload, seen[b].DateUpload) })
	switch {
	case len(ours) == 0 || seen[newest].DateUpload > seen[ours[0]].DateUpload:
		if s := seen[newest]; s.LastUpload < s.DateUpload {
			return "hidden_by_ours_last_upload", newest
		}
		return "unexplained", newest
	case slices.ContainsFunc(theirs, func(id uint64) bool { return seen[id].Owner != seen[newest].Owner }):
		return "another_contact", newest
	case seen[newest].Owner == seen[ours[0]].Owner:
		return seen.sameContact(ours, theirs)
	case seen[newest].DateUpload == seen[ours[0]].DateUpload:
		return "order_of_equals", newest
	case seen[ours[0]].Doubt != "condition":
		return seen.hiddenByTheirs(ours[0]), ours[0]
	}
	return "another_contact", ours[0]
}

func (seen sightings) hiddenByTheirs(photo uint64) Class {
	return Class("hidden_by_theirs_" + seen[photo].Doubt)
}

// sameContact judges two answers with photos of the same contact.
func (seen sightings) sameContact(ours, theirs []uint64) (Class, uint64) {
	if slices.EqualFunc(ours, theirs, func(a, b uint64) bool { return seen[a].DateUpload == seen[b].DateUpload }) {
		return "order_of_equals", theirs[0]
	}
	for _, id := range ours {
		switch {
		case slices.Contains(theirs, id):
		case seen[id].Doubt == "visibility":
			return seen.hiddenByTheirs(id), id
		default: // the relation hides no other photo of the contact
			return "hidden_by_theirs_condition", id
		}
	}
	if len(theirs) > len(ours) {
		return "unexplained", theirs[len(ours)]
	}
	return "another_order", theirs[0]
}
