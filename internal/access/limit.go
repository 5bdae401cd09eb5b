package access

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// Limit says how many requests a token may make. The zero Limit is none.
type Limit struct {
	Count int           // requests
	Per   time.Duration // in a second, a minute or an hour
	Burst int           // requests at once, after a pause
}

// most is the largest rate and the largest burst.
const most = 1_000_000

var errRate = errors.New("want a rate of 1 to 1000000 requests a second, minute or hour, as in 100/s, 600/m or 5000/h")

// units are the times that a rate may be for.
var units = []struct {
	name string
	per  time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}}

// ParseLimit reads a rate such as 100/s, 600/m or 5000/h. A burst of 0 stands for
// what the rate brings in a second, or for 1 if that is less.
func ParseLimit(rate string, burst int) (Limit, error) {
	number, unit, _ := strings.Cut(rate, "/")
	count, err := strconv.Atoi(number)
	if err != nil || count < 1 || count > most || strconv.Itoa(count) != number {
		return Limit{}, errRate
	}
	if burst < 0 || burst > most {
		return Limit{}, fmt.Errorf("want a burst of 1 to %d requests", most)
	}
	for _, u := range units {
		if u.name == unit {
			l := Limit{Count: count, Per: u.per, Burst: burst}
			if burst == 0 {
				l.Burst = int(math.Ceil(l.perSecond()))
			}
			return l, nil
		}
	}
	return Limit{}, errRate
}

func (l Limit) perSecond() float64 { return float64(l.Count) / l.Per.Seconds() }

// String returns the limit as it stands in a line, "" if there is none.
func (l Limit) String() string {
	for _, u := range units {
		if l.Count > 0 && u.per == l.Per {
			return fmt.Sprintf("rate=%d/%s burst=%d", l.Count, u.name, l.Burst)
		}
	}
	return ""
}

// bucket returns the bucket of a token with this limit, nil if it has none. The
// bucket that the token had goes on with what is left in it.
func (l Limit) bucket(old *rate.Limiter) *rate.Limiter {
	if l.Count == 0 {
		return nil
	}
	if old == nil {
		return rate.NewLimiter(rate.Limit(l.perSecond()), l.Burst)
	}
	// Also when nothing changed: that is cheaper than to find out.
	old.SetLimit(rate.Limit(l.perSecond()))
	old.SetBurst(l.Burst)
	return old
}

// takeOne takes a request from a bucket, or says how long it takes until there is
// one. A reservation that is cancelled would say the same, but does not give back
// all when others were made meanwhile.
func takeOne(b *rate.Limiter) (wait time.Duration, ok bool) {
	now := time.Now()
	if b == nil || b.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - b.TokensAt(now)
	return time.Duration(missing / float64(b.Limit()) * float64(time.Second)), false
}
