package main

import (
	"fmt"
	"hash/crc32"
	"math"
	"strconv"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// crowd is the shape of a site whose members differ as those of real sites do: most have
// few contacts and few followers, some have very many. Capacity is computed from these
// numbers, and a site is made of the same ones, to see whether it is computed right.
//
// Every draw is a number v between 0 and 1, spread evenly:
//
//   - a member has the whole part of LeastContacts / v^(1/ContactsTail) contacts, and at most
//     MostContacts, or a quarter of all members;
//   - members have ranks, from 0 for the most followed one; a contact is the member of rank
//     Members × v^FollowTail, and the uploader of a photo that of rank Members × v^UploadTail;
//   - a share Uploaders of the members, whatever their rank, ever uploaded.
type crowd struct {
	Members       float64 `json:"members"`
	LeastContacts float64 `json:"least_contacts"`
	ContactsTail  float64 `json:"contacts_tail"`
	MostContacts  float64 `json:"most_contacts"`
	FollowTail    float64 `json:"follow_tail"`
	UploadTail    float64 `json:"upload_tail"`
	Uploaders     float64 `json:"uploaders"`
}

// most is the largest number of contacts.
func (c crowd) most() float64 { return math.Floor(min(c.MostContacts, c.Members/4)) }

// atLeast is the share of members with at least k contacts.
func (c crowd) atLeast(k float64) float64 {
	if k > c.most() {
		return 0
	}
	return min(1, math.Pow(c.LeastContacts/k, c.ContactsTail))
}

// sumTo is the sum of f over the whole numbers from first to last, or the integral of it
// where they are many: f is smooth.
func sumTo(first, last float64, f func(float64) float64) (sum float64) {
	const exactly, steps = 500, 400
	x := first
	for ; x <= last && x < first+exactly; x++ {
		sum += f(x)
	}
	if x > last {
		return sum
	}
	from, ratio := x-0.5, math.Pow((last+0.5)/(x-0.5), 1.0/steps)
	for range steps {
		to := from * ratio
		sum += f(math.Sqrt(from*to)) * (to - from)
		from = to
	}
	return sum
}

// contacts is how many a member has in the mean.
func (c crowd) contacts() float64 { return sumTo(1, c.most(), c.atLeast) }

// share is the part of the draws with an exponent that a rank gets.
func (c crowd) share(rank, exponent float64) float64 {
	return math.Pow((rank+1)/c.Members, 1/exponent) - math.Pow(rank/c.Members, 1/exponent)
}

// mostFollowers is how many the member of rank 0 has.
func (c crowd) mostFollowers() float64 {
	return min(c.Members, c.contacts()*c.Members*c.share(0, c.FollowTail))
}

// followersOfUpload is how many followers the uploader of a photo has in the mean.
func (c crowd) followersOfUpload() float64 {
	return c.overUploads(func(followers float64) float64 { return followers })
}

// overUploads is the mean of f of the followers of an upload.
func (c crowd) overUploads(f func(followers float64) float64) float64 {
	edges := c.contacts() * c.Members
	return sumTo(0, c.Members-1, func(rank float64) float64 {
		return c.share(rank, c.UploadTail) * f(min(c.Members, edges*c.share(rank, c.FollowTail)))
	})
}

// chance is the standard deviation of the followers told by so many uploads, as a part of
// them: with a heavy tail it matters which members happen to upload.
func (c crowd) chance(uploads float64) float64 {
	mean := c.followersOfUpload()
	square := c.overUploads(func(followers float64) float64 { return followers * followers })
	return math.Sqrt((square-mean*mean)/uploads) / mean
}

// setSizes are the shares of members with sets of 0 to max contacts: those of their
// contacts who ever uploaded, or the most recent of them.
func (c crowd) setSizes() []float64 {
	full := indexMax()
	sizes := make([]float64, full+1)
	left := 1.0
	// From a degree on, all sets are full.
	for k := 0.0; k <= c.most() && left > 0; k++ {
		part := c.atLeast(k) - c.atLeast(k+1)
		left -= part
		p := math.Pow(1-c.Uploaders, k) // that none of k uploaded
		for i := range full {
			sizes[i] += part * p
			p *= (k - float64(i)) / float64(i+1) * c.Uploaders / (1 - c.Uploaders)
		}
		if c.Uploaders*k > 10*float64(full) {
			break
		}
	}
	rest := 1.0
	for _, share := range sizes[:full] {
		rest -= share
	}
	sizes[full] = rest
	return sizes
}

// indexMax is the largest size of a set, with the settings of a service.
func indexMax() int {
	settings, err := index.NewSettings(10, 20, 0)
	if err != nil {
		panic(err) // they are constants
	}
	return settings.Max
}

// drawn is the v of a draw by its name, as the statements that make the site compute it.
func drawn(name string) float64 {
	return (float64(crc32.ChecksumIEEE([]byte(name))) + 0.5) / (1 << 32)
}

// scatter is a prime number: ids are not in the order of the ranks.
const scatter = 7919

// id is the member of a rank.
func (c crowd) id(rank int) member.ID {
	return member.ID(firstMember + rank*scatter%int(c.Members))
}

// uploads reports whether a member ever uploaded.
func (c crowd) uploads(id member.ID) bool {
	return drawn("u"+strconv.FormatUint(uint64(id)-firstMember, 10)) < c.Uploaders
}

// uploader draws the member that uploads the i-th photo, among those who ever did.
func (c crowd) uploader(i int) member.ID {
	for try := 0; ; try++ {
		v := drawn("upload" + strconv.Itoa(i) + "-" + strconv.Itoa(try))
		if id := c.id(int(c.Members * math.Pow(v, c.UploadTail))); c.uploads(id) {
			return id
		}
	}
}

// statements make the site, with ten photos of each member that ever uploaded.
func (c crowd) statements() []loading {
	const v = "((CRC32(CONCAT(%s)) + 5e-1) / 4294967296e0)"
	n := int(c.Members)
	return append(numbersBelow(max(n, int(c.most()), 1000)),
		loading{
			"members", "INSERT INTO users (id, username, last_upload) SELECT ? + m.n, CONCAT('member', m.n)," +
				" IF(" + fmt.Sprintf(v, "'u', m.n") + " < ?, " + newestOf + ", NULL) FROM numbers m WHERE m.n < ?",
			[]any{firstMember, c.Uploaders, n},
		},
		loading{"no index of followers", "ALTER TABLE contacts DROP KEY followers", nil},
		loading{"a table of degrees", "CREATE TABLE degrees (n BIGINT PRIMARY KEY, degree BIGINT NOT NULL) ENGINE=InnoDB", nil},
		loading{
			"degrees", "INSERT INTO degrees SELECT m.n, LEAST(?, FLOOR(? * POW(" + fmt.Sprintf(v, "'d', m.n") + ", ?))) FROM numbers m WHERE m.n < ?",
			[]any{c.most(), c.LeastContacts, -1 / c.ContactsTail, n},
		},
		loading{
			"contacts", "INSERT IGNORE INTO contacts (user_id, contact_id, is_friend, is_family)" +
				" SELECT ? + m.n, ? + MOD(FLOOR(? * POW(" + fmt.Sprintf(v, "'c', m.n, '-', k.n") + ", ?)) * ?, ?), MOD(m.n + k.n, 5) = 0, MOD(m.n + k.n, 7) = 0" +
				" FROM degrees m STRAIGHT_JOIN numbers k ON k.n < m.degree",
			[]any{firstMember, firstMember, n, c.FollowTail, scatter, n},
		},
		loading{"the index of followers", "ALTER TABLE contacts ADD KEY followers (contact_id, user_id)", nil},
		loading{
			"photos", "INSERT INTO photos (owner_id, title, visibility, date_upload) SELECT u.id, CONCAT('photo ', k.n, ' of ', u.id)," +
				" CASE MOD(CRC32(CONCAT(u.id, '-', k.n)), 20) WHEN 0 THEN 'private' WHEN 1 THEN 'friends' WHEN 2 THEN 'family' WHEN 3 THEN 'friends_family' ELSE 'public' END," +
				" u.last_upload - k.n * 864000 FROM users u STRAIGHT_JOIN numbers k ON k.n < 10 WHERE u.last_upload > 0", nil,
		},
		loading{"statistics", "ANALYZE TABLE users, contacts, photos", nil},
		loading{"numbers dropped", "DROP TABLE numbers", nil})
}
