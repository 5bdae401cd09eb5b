package shadow

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
)

// Auditor says whether a set is wrong, as [audit.Auditor] does.
type Auditor interface {
	Check(ctx context.Context, members []member.ID) (audit.Report, error)
}

// Options are what a [Comparer] works on. DB, Index and Auditor are required.
type Options struct {
	DB      *sql.DB // may have a user that can only read
	Index   recent.Index
	Auditor Auditor
	Reads   recent.Options // of the read
	// Timeout bounds each statement. Of the site's own the server bounds it, too; default 2 s.
	Timeout time.Duration
}

// Comparer compares answers. It changes nothing, and is safe for concurrent use.
type Comparer struct {
	options   Options
	auditTime time.Duration // for looking at a set again
}

// auditTime is twice what the audit pauses for a set that never rests.
const auditTime = 15 * time.Second

// NewComparer returns a comparer.
func NewComparer(o Options) *Comparer {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Reads.Uncounted, o.Reads.WalkTimeout = true, o.Timeout+grace
	return &Comparer{o, auditTime}
}

// DefaultTimeout is the default of [Options.Timeout].
const DefaultTimeout = 2 * time.Second

// Cost is what an answer cost.
type Cost struct {
	Took time.Duration
	Rows int // and index entries, that MySQL read
}

// Comparison is the result for one viewer.
type Comparison struct {
	Difference   *Difference // nil: the answers are the same
	Ours, Theirs Cost        // ours with Redis
	Walked       string      // why ours walked, see [recent.SetMissing] and those beside it; "": it did not

	due []uint64 // what is due by the definition, if the answers differ
}

// ErrTooSlow is wrapped by the error of a comparison whose site's statement reached the time limit.
var ErrTooSlow = errors.New("the site's statement took too long")

// snapshot is one transaction in which both answers are found.
type snapshot struct {
	*Comparer
	tx     *sql.Tx
	viewer contacts.Viewer
	limit  int
	set    candidates
}

// candidates is a set that was read before the transaction began. It is an [recent.Index].
type candidates struct {
	entries   []index.Entry
	broadcast index.Copy
	err       error
}

// Candidates implements [recent.Index].
func (c candidates) Candidates(context.Context, member.ID) ([]index.Entry, index.Copy, error) {
	return c.entries, c.broadcast, c.err
}

// noHints is for reads that change nothing.
type noHints struct{}

func (noHints) Refill(member.ID)               {}
func (noHints) LookAgain(member.ID, member.ID) {}

// Compare runs the site's statement and our read for a viewer, at one instant. theirsFirst says which of them
// runs first, and so warms the server's cache for the other. It fails with [contacts.ErrNoMember],
// with [ErrTooSlow], and as [mysql.Translate] says.
func (c *Comparer) Compare(ctx context.Context, own Statement, v contacts.Viewer, limit int, theirsFirst bool) (Comparison, error) {
	return c.compare(ctx, v, limit, func(ctx context.Context, s *snapshot, readSet time.Duration) (out Comparison, err error) {
		if err := s.bound(ctx); err != nil {
			return out, err
		}
		var theirs []uint64
		var ours recent.Answer
		both := []func() (Cost, error){
			func() (cost Cost, err error) {
				cost, err = s.measured(ctx, func() (err error) {
					theirs, err = s.theirs(ctx, own)
					return err
				})
				return cost, err
			},
			func() (cost Cost, err error) {
				cost, err = s.measured(ctx, func() (err error) {
					ours, err = s.ours(ctx)
					return err
				})
				cost.Took += readSet
				return cost, err
			},
		}
		costs, order := make([]Cost, 2), []int{0, 1}
		if !theirsFirst {
			slices.Reverse(order)
		}
		for _, i := range order {
			if costs[i], err = both[i](); err != nil {
				return out, err
			}
		}
		out.Theirs, out.Ours, out.Walked = costs[0], costs[1], ours.Trace.WalkReason
		err = s.judge(ctx, &out, ours, theirs)
		return out, err
	})
}

// compareAnswer compares an answer that the site gave with ours.
func (c *Comparer) compareAnswer(ctx context.Context, v contacts.Viewer, limit int, theirs []uint64) (Comparison, error) {
	return c.compare(ctx, v, limit, func(ctx context.Context, s *snapshot, _ time.Duration) (out Comparison, err error) {
		ours, err := s.ours(ctx)
		if err != nil {
			return out, err
		}
		out.Walked = ours.Trace.WalkReason
		err = s.judge(ctx, &out, ours, theirs)
		return out, err
	})
}

// compare calls do with a snapshot. A set that it finds behind is looked at once more when the transaction has ended,
// as the audit takes its time.
func (c *Comparer) compare(ctx context.Context, v contacts.Viewer, limit int, do func(ctx context.Context, s *snapshot, readSet time.Duration) (Comparison, error)) (Comparison, error) {
	var out Comparison
	err := within(ctx, 5*c.options.Timeout+5*time.Second, v, func(ctx context.Context) error {
		return c.inSnapshot(ctx, v, limit, func(s *snapshot, readSet time.Duration) (err error) {
			out, err = do(ctx, s, readSet)
			return err
		})
	})
	if err == nil && out.Difference != nil && out.Difference.Class == Lag {
		err = within(ctx, c.auditTime, v, func(ctx context.Context) error { return c.lookAgain(ctx, out.Difference) })
	}
	if err != nil {
		return Comparison{}, err
	}
	return out, nil
}

// within calls do, and no longer than limit: a server that hangs ends no statement.
func within(ctx context.Context, limit time.Duration, v contacts.Viewer, do func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := do(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("compare the answers for member %s: %w: no answer within %v", v.ID, mysql.ErrUnavailable, limit)
	}
	return err
}

// inSnapshot reads the set, and then calls do in a transaction that sees one instant: that of its first read.
func (c *Comparer) inSnapshot(ctx context.Context, v contacts.Viewer, limit int, do func(s *snapshot, readSet time.Duration) error) error {
	s := &snapshot{Comparer: c, viewer: v, limit: limit}
	start := time.Now()
	wait, cancel := context.WithTimeout(ctx, cmp.Or(c.options.Reads.IndexWait, 250*time.Millisecond))
	s.set.entries, s.set.broadcast, s.set.err = c.options.Index.Candidates(wait, v.ID)
	cancel()
	readSet := time.Since(start)
	what := fmt.Sprintf("compare the answers for member %s", v.ID)
	tx, err := c.options.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return mysql.Translate(ctx, what, err)
	}
	s.tx = tx
	defer func() { _ = tx.Rollback() }() // it only read
	return do(s, readSet)
}

// bound has the server end what takes too long. It is a setting of the session, and so of a
// connection that nothing else may use.
func (s *snapshot) bound(ctx context.Context) error {
	limit := s.options.Timeout
	_, err := s.tx.ExecContext(ctx, fmt.Sprintf("SET max_sort_length = 1024 /*!80013 , max_execution_time = %d */ /*M!100600 , max_statement_time = %.3f */",
		limit.Milliseconds(), limit.Seconds()))
	return mysql.Translate(ctx, "set the time limit of the statement", err)
}

// measured returns what do cost. What the counting itself reads is taken off.
func (s *snapshot) measured(ctx context.Context, do func() error) (Cost, error) {
	var rows [3]int
	var took time.Duration
	for i := range rows {
		if i == 2 {
			start := time.Now()
			err := do()
			if took = time.Since(start); err != nil {
				return Cost{}, err
			}
		}
		var err error
		if rows[i], err = s.rowsRead(ctx); err != nil {
			return Cost{}, mysql.Translate(ctx, "count the rows that are read", err)
		}
	}
	return Cost{took, max(0, rows[2]-rows[1]-(rows[1]-rows[0]))}, nil
}

// rowsRead returns how many rows and index entries the connection has read.
func (s *snapshot) rowsRead(ctx context.Context) (sum int, err error) {
	rows, err := mysql.Select(ctx, s.tx, mysql.ByName, "SHOW SESSION STATUS LIKE 'Handler_read%'")
	for _, row := range rows {
		n, wrong := strconv.Atoi(row["value"])
		if wrong != nil {
			return 0, wrong
		}
		sum += n
	}
	return sum, err
}

// grace is how much later than the server's limit the client gives a statement up.
const grace = time.Second

// theirs returns the photos of the site's statement, limit at most.
func (s *snapshot) theirs(ctx context.Context, own Statement) ([]uint64, error) {
	start := time.Now()
	bounded, cancel := context.WithTimeout(ctx, s.options.Timeout+grace)
	defer cancel()
	ids, err := s.photosOf(bounded, own)
	took := time.Since(start)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the site's statement: %w", ctx.Err())
	case bounded.Err() != nil: // the server did not end it
		return nil, fmt.Errorf("the site's statement: %w: no answer within %v", mysql.ErrUnavailable, s.options.Timeout+grace)
	case mysql.IsTooSlow(err), took >= s.options.Timeout: // MySQL ends a SLEEP without an error
		return nil, fmt.Errorf("%w: more than %v for member %s", ErrTooSlow, s.options.Timeout, s.viewer.ID)
	}
	err = mysql.Translate(ctx, "the site's statement", err)
	if errors.Is(err, driver.ErrBadConn) {
		err = fmt.Errorf("%w: %w", err, errBroken)
	}
	return ids, err
}

// errBroken is wrapped by the error of a site's statement during which the connection broke. The driver closes it, too,
// when the server refuses a write.
var errBroken = errors.New("if it is so each time, the statement calls a function that changes something, which a read-only transaction refuses")

// photosOf reads the answer to its end, though it keeps limit photos at most: ctx ends a read, but not what Close
// does to throw the rest away.
func (s *snapshot) photosOf(ctx context.Context, own Statement) (ids []uint64, err error) {
	rows, err := s.tx.QueryContext(ctx, own.text, own.bind(s.viewer, s.limit)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err has said it
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	into := make([]any, len(columns))
	for i := range into {
		into[i] = new(sql.RawBytes)
	}
	var wrong error
	for rows.Next() {
		if wrong != nil || len(ids) == s.limit {
			continue
		}
		if wrong = rows.Scan(into...); wrong != nil {
			continue
		}
		text := string(*into[0].(*sql.RawBytes))
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil || id == 0 {
			wrong = fmt.Errorf("its column %s has %.40q: want the id of a photo in the first column", columns[0], text)
			continue
		}
		ids = append(ids, id)
	}
	return ids, cmp.Or(rows.Err(), wrong)
}

// ours reads as the API does, by the set and with its proof.
func (s *snapshot) ours(ctx context.Context) (recent.Answer, error) {
	limit := 3*s.options.Timeout + grace // the server ends a statement that takes longer than Timeout
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a, err := recent.NewReader(s.set, contacts.NewSnapshot(s.tx), noHints{}, s.options.Reads).Read(bounded, s.viewer, s.limit)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("our read: %w: no answer within %v", mysql.ErrUnavailable, limit)
	}
	return a, err
}

// judge says how theirs and ours differ. What is due by the definition, by our tables alone, decides which
// of the two is to blame.
func (s *snapshot) judge(ctx context.Context, out *Comparison, ours recent.Answer, theirs []uint64) error {
	if slices.Equal(idsOf(ours.Photos), theirs) {
		return nil
	}
	due := ours.Album
	if ours.Source == recent.FromIndex {
		walked, err := contacts.NewSnapshot(s.tx).Walk(ctx, s.viewer, s.limit)
		if err != nil {
			return err
		}
		due = walked.Album
	}
	out.due = idsOf(due.Photos)
	sightings, err := s.sightings(ctx, slices.Concat(theirs, out.due))
	if err != nil {
		return err
	}
	var j judged
	if slices.Equal(out.due, theirs) {
		j = behind(due, sightings)
	} else {
		j = classify(due, theirs, sightings)
	}
	out.Difference = &Difference{
		Class: j.class, Cause: j.cause, Viewer: s.viewer.ID, Photo: j.photo, Owner: sightings[j.photo].Owner,
		Ours: idsOf(ours.Photos), Theirs: append(Photos{}, theirs...), Detail: j.detail,
	}
	return nil
}

// sightings returns the sighting of each of some photos.
func (s *snapshot) sightings(ctx context.Context, photos []uint64) (map[uint64]contacts.Sighting, error) {
	list, err := contacts.NewSnapshot(s.tx).Sightings(ctx, s.viewer, slices.Compact(slices.Sorted(slices.Values(photos))))
	found := make(map[uint64]contacts.Sighting, len(list))
	for _, one := range list {
		found[one.Photo] = one
	}
	return found, err
}

// lookAgain has the audit look at the set that ours went by, which gave another answer than what is due. If it is wrong
// still, and no task is pending that will mend it, the difference is no lag. Else it was behind: a task
// is pending, or was done after the set was read.
func (c *Comparer) lookAgain(ctx context.Context, d *Difference) error {
	report, err := c.options.Auditor.Check(ctx, []member.ID{d.Viewer})
	if err != nil {
		return fmt.Errorf("look at the set of member %s: %w", d.Viewer, err)
	}
	for _, f := range report.Findings {
		if f.Class == audit.Error && f.Cause != audit.LowLastUpload && f.Cause != audit.LostSet { // neither explains the answer
			d.Class, d.Cause, d.Detail = Unexplained, Index, "theirs is what is due, and the set is wrong: "+f.String()
			return nil
		}
	}
	return nil
}
