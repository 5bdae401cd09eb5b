package push

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// Device is a phone or a browser of a member.
type Device struct {
	ID         uint64
	Member     member.ID
	Platform   Platform
	Address    Address
	Registered time.Time // when its address was last confirmed, by the database's clock
	Language   string    // a tag of BCP 47; "": it is not known
	// Gone is when it was found to be gone, and GoneReason why, as in [Result.Reason] or [Silent].
	// Zero: it is live.
	Gone       time.Time
	GoneReason string
}

// Address is where a device is reached, in the form of its platform. All of it is secret, and it is
// marshalled by nothing but the store.
type Address struct {
	Secret

	key  string               // "" after it was read from the store: it cannot be registered
	text []byte               // JSON
	read *atomic.Pointer[any] // the result of DecodeAddress; nil: it is not kept
}

// NewAddress returns an address. Two addresses of a platform with the same key, such as a token or a URL, are the same device.
// value is all that the platform needs, and is kept as JSON; it panics if there is no JSON for it.
func NewAddress(key string, value any) Address {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("push: an address of type %T: %v", value, err))
	}
	return Address{key: key, text: text}
}

// hash tells the addresses of all platforms apart. It returns an error for an address that was read from the store.
func (a Address) hash(p Platform) ([]byte, error) {
	if a.key == "" { // else all would be the same device
		return nil, errors.New("push: this address was not made to be registered")
	}
	sum := hashOf(string(p), a.key)
	return sum[:], nil
}

// Decode is the inverse of [NewAddress]. Its error quotes nothing of the address.
func (a Address) Decode(value any) error {
	if json.Unmarshal(a.text, value) != nil {
		return errors.New("the address is not as activityd writes it")
	}
	return nil
}

// DecodeAddress returns an address in the form of its platform; zero: it cannot be read. An address of the store is decoded once:
// a tenth of the processor time of a message.
func DecodeAddress[T any](a Address) (to T) {
	if a.read == nil {
		a.read = new(atomic.Pointer[any])
	}
	if known := a.read.Load(); known != nil {
		to, _ = (*known).(T)
		return to
	}
	if a.Decode(&to) != nil {
		to = *new(T)
	}
	kept := any(to)
	a.read.Store(&kept)
	return to
}

// MarshalJSON implements [json.Marshaler].
func (Address) MarshalJSON() ([]byte, error) { return []byte(`"` + secret + `"`), nil }

// Secret is embedded in values that are printed and logged as "secret".
type Secret struct{}

const secret = "secret"

// String implements [fmt.Stringer].
func (Secret) String() string { return secret }

// Format implements [fmt.Formatter], for all verbs.
func (Secret) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(secret)) }

// LogValue implements [slog.LogValuer].
func (Secret) LogValue() slog.Value { return slog.StringValue(secret) }
