package auth

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

// Limit is how many requests a token may make. The zero Limit is none.
type Limit struct {
	Count int    // requests
	Per   string // "s", "m" or "h": in a second, a minute or an hour
	Burst int    // requests at once, after a pause
}

// maxLimit is the largest rate and the largest burst.
const maxLimit = 1_000_000

var (
	errRate    = errors.New("want a rate of 1 to 1000000 requests a second, minute or hour, as in 100/s, 600/m or 5000/h")
	rateFormat = regexp.MustCompile(`^([1-9][0-9]{0,6})/([smh])$`)
	seconds    = map[string]float64{"s": 1, "m": 60, "h": 3600}
)

// ParseLimit reads a rate such as 100/s, 600/m or 5000/h. A burst of 0 stands for
// what the rate brings in a second, or for 1 if that is less.
func ParseLimit(rate string, burst int) (Limit, error) {
	parts := rateFormat.FindStringSubmatch(rate)
	if parts == nil {
		return Limit{}, errRate
	}
	count, err := strconv.Atoi(parts[1])
	if err != nil || count > maxLimit {
		return Limit{}, errRate
	}
	if burst < 0 || burst > maxLimit {
		return Limit{}, fmt.Errorf("want a burst of 1 to %d requests", maxLimit)
	}
	l := Limit{Count: count, Per: parts[2], Burst: burst}
	if burst == 0 {
		l.Burst = int(math.Ceil(l.perSecond()))
	}
	return l, nil
}

func (l Limit) perSecond() float64 { return float64(l.Count) / seconds[l.Per] }

// String returns the limit as it stands in a line, "" if there is none.
func (l Limit) String() string {
	if l.Count == 0 {
		return ""
	}
	return fmt.Sprintf("rate=%d/%s burst=%d", l.Count, l.Per, l.Burst)
}

// bucket returns the bucket of a token with this limit, nil if it has none. The bucket
// that the token had before keeps what is left in it.
func (l Limit) bucket(old *rate.Limiter) *rate.Limiter {
	if l.Count == 0 {
		return nil
	}
	if old == nil {
		return rate.NewLimiter(rate.Limit(l.perSecond()), l.Burst)
	}
	old.SetLimit(rate.Limit(l.perSecond()))
	old.SetBurst(l.Burst)
	return old
}

// takeOne takes a request from a bucket, or returns how long it takes until there is one. A reservation that is cancelled would say the same, but does not give back
// all when others were made in between.
func takeOne(b *rate.Limiter) (wait time.Duration, ok bool) {
	now := time.Now()
	if b == nil || b.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - b.TokensAt(now)
	return time.Duration(missing / float64(b.Limit()) * float64(time.Second)), false
}
