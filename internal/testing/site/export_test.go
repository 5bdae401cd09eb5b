package site

import (
	"strings"

	"github.com/activityd/activityd/internal/contacts"
)

// Abbreviated returns a plain statement with newest(u) in place of [newestVisible], and that with
// newest(u, 'public') and the like in place of newestOf.
func Abbreviated(text string) (statement, visible string) {
	var classes []string
	for _, v := range contacts.Classes() {
		classes = append(classes, newestOf(v), "newest(u, '"+string(v)+"')")
	}
	return strings.ReplaceAll(text, newestVisible, "newest(u)"), strings.NewReplacer(classes...).Replace(newestVisible)
}

// NewestPublic is the subquery that Abbreviated calls newest(u, 'public').
var NewestPublic = newestOf(contacts.Public)
