package api

import (
	"net/http"
	"strings"
)

const (
	headerKey      = "Idempotency-Key"
	headerReplayed = "Idempotency-Replayed"
)

// maxKey is how many characters an idempotency key may have.
const maxKey = 255

// idempotencyKey returns the key of a request (IETF draft
// httpapi-idempotency-key-header), "" when it has none. The draft has it quoted, as
// a structured field; clients often send it bare, and mean the same.
func (f *faults) idempotencyKey(header http.Header) string {
	given := header.Values(headerKey)
	switch len(given) {
	case 0:
		return ""
	case 1:
	default:
		f.addf(headerKey, "given more than once")
		return ""
	}
	key, ok := given[0], true
	if strings.HasPrefix(key, `"`) {
		key, ok = unquote(key)
	}
	if !ok || key == "" || len(key) > maxKey || strings.ContainsFunc(key, invisible) {
		f.addf(headerKey, "want 1 to %d visible ASCII characters, bare or in double quotes", maxKey)
		return ""
	}
	return key
}

func invisible(r rune) bool { return r <= ' ' || r >= 0x7f }

// unquote reads a string of a structured field (RFC 9651, 3.3.3): backslashes
// stand before quotes and backslashes, and nowhere else.
func unquote(s string) (string, bool) {
	inner, ok := strings.CutSuffix(s[1:], `"`)
	if !ok {
		return "", false
	}
	var out strings.Builder
	for i := 0; i < len(inner); i++ {
		switch inner[i] {
		case '"':
			return "", false
		case '\\':
			i++
			if i == len(inner) || inner[i] != '"' && inner[i] != '\\' {
				return "", false
			}
		}
		out.WriteByte(inner[i])
	}
	return out.String(), true
}
