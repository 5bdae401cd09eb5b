package push

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// Imported is a device that another system knew.
type Imported struct {
	Member     member.ID
	Platform   Platform
	Address    Address
	Language   string
	Registered time.Time // when its app or browser confirmed its address; zero: long ago
}

// Import says what became of an [Imported].
type Import string

// What becomes of them.
const (
	ImportAdded    Import = "added"
	ImportReplaced Import = "replaced" // its address was another member's, or older, or gone
	ImportKnown    Import = "known"    // its address was confirmed then, or later, and stays as it is
	ImportExcess   Import = "excess"   // its member has [MaxDevices] that were confirmed then, or later
	ImportNoMember Import = "no_member"
)

// longAgo is when a device was registered of which that is not known, in unix milliseconds: whatever a push
// service says of its address counts, and so does every registration.
const longAgo = 1000

// knownDevice is a device that is there, by its address.
type knownDevice struct {
	registered, gone uint64 // gone: 0, or when
}

// Import adds devices in one transaction, and returns what became of each. Of the registrations of an address the latest
// counts, whichever system it was made with; of two at the same time the one that is there, or comes first in
// the batch. So a batch may be imported again, and devices that were registered since stay as they are.
func (m *MySQL) Import(ctx context.Context, batch []Imported) (became []Import, err error) {
	for try := 1; ; try++ {
		err = mysql.Transact(ctx, m.db, fmt.Sprintf("import %d devices", len(batch)), func(tx *sql.Tx) (err error) {
			became, err = importDevices(ctx, tx, batch)
			return err
		})
		if !mysql.IsDuplicate(err) || try == storeTries { // another process was quicker
			return became, err
		}
	}
}

func importDevices(ctx context.Context, tx *sql.Tx, batch []Imported) ([]Import, error) {
	became, latest, err := latestOf(ctx, tx, batch)
	if err != nil {
		return nil, err
	}
	hashes := slices.Sorted(maps.Keys(latest)) // one order of locks
	known, err := knownDevices(ctx, tx, hashes)
	if err != nil {
		return nil, err
	}
	var added []string
	members := make(map[member.ID]bool)
	for _, hash := range hashes {
		i := latest[hash]
		d := batch[i]
		is, there := known[hash]
		switch {
		case !there:
			became[i] = ImportAdded
			added = append(added, hash)
		case d.registered() > max(is.registered, is.gone):
			became[i] = ImportReplaced
			if err := d.replace(ctx, tx, hash); err != nil {
				return nil, err
			}
		default:
			continue
		}
		members[d.Member] = true
	}
	if err := insertDevices(ctx, tx, batch, latest, added); err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		dropped, err := dropOldest(ctx, tx, id, false)
		if err != nil {
			return nil, err
		}
		for _, hash := range dropped {
			if i, ours := latest[hash]; ours {
				became[i] = ImportExcess
			}
		}
	}
	return became, nil
}

// latestOf returns the places of the latest registrations of a batch, by the hash of the address, and of all others what
// becomes of them.
func latestOf(ctx context.Context, tx *sql.Tx, batch []Imported) (became []Import, latest map[string]int, err error) {
	became, latest = make([]Import, len(batch)), make(map[string]int)
	var ids []uint64
	for _, d := range batch {
		ids = append(ids, uint64(d.Member))
	}
	present, err := presentOf(ctx, tx, ids)
	if err != nil {
		return nil, nil, err
	}
	for i, d := range batch {
		if _, found := slices.BinarySearch(present, uint64(d.Member)); !found {
			became[i] = ImportNoMember
			continue
		}
		became[i] = ImportKnown
		sum, err := d.Address.hash(d.Platform)
		if err != nil {
			return nil, nil, err
		}
		hash := string(sum)
		if other, twice := latest[hash]; !twice || d.registered() > batch[other].registered() {
			latest[hash] = i
		}
	}
	return became, latest, nil
}

// registered is when it was registered, in unix milliseconds.
func (d Imported) registered() uint64 {
	if d.Registered.IsZero() {
		return longAgo
	}
	return uint64(max(longAgo, d.Registered.UnixMilli()))
}

// presentOf returns those of ids that are members, ascending.
func presentOf(ctx context.Context, tx *sql.Tx, ids []uint64) ([]uint64, error) {
	list, err := json.Marshal(slices.Compact(slices.Sorted(slices.Values(ids))))
	if err != nil {
		return nil, err
	}
	present, err := mysql.Select(ctx, tx, mysql.Column[uint64], membersText, string(list))
	slices.Sort(present)
	return present, err
}

// knownDevices locks the devices with these hashes.
func knownDevices(ctx context.Context, tx *sql.Tx, hashes []string) (map[string]knownDevice, error) {
	known := make(map[string]knownDevice, len(hashes))
	if len(hashes) == 0 {
		return known, nil
	}
	args := make([]any, len(hashes))
	for i, hash := range hashes {
		args[i] = []byte(hash)
	}
	_, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (_ struct{}, err error) {
		var hash []byte
		var d knownDevice
		err = rows.Scan(&hash, &d.registered, &d.gone)
		known[string(hash)] = d
		return struct{}{}, err
	}, "SELECT address_hash, registered_at, COALESCE(gone_at, 0) FROM push_devices FORCE INDEX (address) WHERE address_hash IN ("+
		mysql.Marks(len(hashes))+") ORDER BY address_hash FOR UPDATE", args...)
	return known, err
}

// replace makes the device with a hash this one.
func (d Imported) replace(ctx context.Context, tx *sql.Tx, hash string) error {
	_, err := tx.ExecContext(ctx, "UPDATE push_devices SET member_id = ?, address = ?, language = ?, registered_at = ?,"+
		" silent_since = IF(gone_at IS NULL, silent_since, NULL), gone_at = NULL, gone_reason = '' WHERE address_hash = ?",
		d.Member, string(d.Address.text), d.Language, d.registered(), []byte(hash))
	return err
}

// insertDevices inserts those of a batch whose hashes are added.
func insertDevices(ctx context.Context, tx *sql.Tx, batch []Imported, places map[string]int, added []string) error {
	if len(added) == 0 {
		return nil
	}
	var args []any
	for _, hash := range added {
		d := batch[places[hash]]
		args = append(args, d.Member, d.Platform, string(d.Address.text), d.Language, d.registered(), []byte(hash))
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO push_devices (member_id, platform, address, language, registered_at, address_hash) VALUES "+
		strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,?),", len(added)), ","), args...)
	return err
}

// dropOldest deletes the live devices beyond MaxDevices, and returns the hashes of their addresses. Of those that
// were confirmed at the same time it keeps the newest rows, or else the oldest. It locks all that the member has,
// those of transactions that have not committed, too, so that the last to commit sees
// all of them.
func dropOldest(ctx context.Context, tx *sql.Tx, id member.ID, newest bool) (hashes []string, err error) {
	type live struct {
		id, registered uint64
		hash           []byte
	}
	all, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (l live, err error) {
		err = rows.Scan(&l.id, &l.registered, &l.hash)
		return l, err
	}, "SELECT id, registered_at, address_hash FROM push_devices FORCE INDEX (members) WHERE member_id = ? AND gone_at IS NULL FOR UPDATE", id)
	if err != nil || len(all) <= MaxDevices {
		return nil, err
	}
	slices.SortFunc(all, func(a, b live) int {
		ties := cmp.Compare(a.id, b.id)
		if newest {
			ties = -ties
		}
		return cmp.Or(cmp.Compare(b.registered, a.registered), ties)
	})
	var old []any
	for _, l := range all[MaxDevices:] {
		old, hashes = append(old, l.id), append(hashes, string(l.hash))
	}
	_, err = tx.ExecContext(ctx, "DELETE FROM push_devices WHERE id IN ("+mysql.Marks(len(old))+")", old...)
	return hashes, err
}
