package contacts

import (
	"slices"
	"strings"
)

// class is a visibility, and which viewers may see the photos that have it.
type class struct {
	Visibility

	alias string // of its newest photo, in statements
	// granted is the condition, by the owner's row g of contacts about the viewer, which may
	// be missing.
	granted string
}

// Two conditions of a class that no row of contacts decides.
const (
	always = "TRUE"
	never  = "FALSE"
)

// classes are all classes, the narrowest first. Each statement about visibility, and each generator of the tests,
// is made from them; the Go stores and the specifications of the tests state the rule for
// themselves, so that a wrong condition here is found.
var classes = []class{
	{Private, "pri", never},
	{Friends, "fri", "g.is_friend"},
	{Family, "fam", "g.is_family"},
	{FriendsFamily, "ff", "(g.is_friend OR g.is_family)"},
	{Public, "pub", always},
}

// shown are the classes that others than the owner may see.
var shown = slices.DeleteFunc(slices.Clone(classes), func(c class) bool { return c.granted == never })

// Classes returns all visibilities, the narrowest first.
func Classes() []Visibility {
	all := make([]Visibility, len(classes))
	for i, c := range classes {
		all[i] = c.Visibility
	}
	return all
}

// eachOf is the part of a statement that is about each of some classes.
func eachOf(some []class, separator string, part func(class) string) string {
	parts := make([]string, len(some))
	for i, c := range some {
		parts[i] = part(c)
	}
	return strings.Join(parts, separator)
}

// is compares the class of photo x with c. The literal is ASCII and takes the collation of
// the column: see newestFirst.
func (c class) is() string { return "x.visibility = _ascii'" + string(c.Visibility) + "'" }

// SightJoins joins to a statement what [Sight] is about. The statement has, before it,
// the members v as rows of users, and photo, which is the id of a photo: an expression, such
// as q.photo. The aliases that it adds are x, the photo; o, its owner; g, the owner's row
// of contacts about v; and h, the owner's block of v. It reads one row of each by its key. It
// adds no rows unless a block is there twice.
func SightJoins(photo string) string {
	return `
LEFT JOIN photos x ON x.id = ` + photo + `
LEFT JOIN users o ON o.id = x.owner_id
LEFT JOIN contacts g ON g.user_id = o.id AND g.contact_id = v.id
LEFT JOIN blocks h ON h.user_id = o.id AND h.blocked_id = v.id`
}

// Sight is whether member v may see photo x, as an expression over the tables of
// [SightJoins] that is never NULL. An owner sees each of its own photos. To others the
// conditions are those of [MySQL.VisiblePhotos], but that v need not call the owner a
// contact: that is what the read is about, and not what is private. A photo that does not
// exist, or whose owner does not, is seen by no member.
var Sight = "COALESCE(o.id IS NOT NULL AND (o.id = v.id OR h.user_id IS NULL AND (" +
	eachOf(shown, " OR ", func(c class) string { return c.is() + " AND " + c.granted }) + ")), FALSE)"
