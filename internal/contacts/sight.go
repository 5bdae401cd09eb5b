package contacts

import (
	"slices"
	"strings"
)

// Visibility is the members that a photo is shown to; see the package documentation.
type Visibility string

// The visibilities of a photo.
const (
	Private       Visibility = "private"        // the owner alone
	Friends       Visibility = "friends"        // contacts that the owner calls friends
	Family        Visibility = "family"         // contacts that the owner calls family
	FriendsFamily Visibility = "friends_family" // contacts that the owner calls either
	Followers     Visibility = "followers"      // members that call the owner a contact
	Public        Visibility = "public"         // all members
)

// Granted is all that the rows of contacts say of an owner and a viewer. The zero value says that
// there is none.
type Granted struct {
	Contact bool // there is the owner's row about the viewer; it says:
	Friend  bool
	Family  bool
	Follows bool // there is the viewer's row about the owner
}

// class is a visibility, and the viewers that may see the photos that have it.
type class struct {
	Visibility

	alias string // of its newest photo, in statements
	// granted is the condition in SQL, by the owner's row g of contacts about the viewer,
	// which may be missing: see Found.
	granted string
	// follows: there must be the viewer's row about the owner, too. Reads are about followed
	// owners alone, so that [Sight] alone asks.
	follows bool
	// shownTo is both conditions in Go. The tests compare the two.
	shownTo func(Granted) bool
}

// Two conditions of a class that no row of contacts decides.
const (
	always = "TRUE"
	never  = "FALSE"
)

// Found is the condition that an outer join found the row that a key is of: TRUE or FALSE, and never
// NULL. No statement may depend on another column of the row without it. On
// MariaDB 10.11, from the second execution of a prepared statement on, a column that is a constant in a
// view has its value where no row was found, too, and IS NULL is false of a key that the view makes by an
// expression that is never NULL. Keys are above 0, and the comparison is made with the value in the row.
func Found(key string) string { return "COALESCE(" + key + " > 0, FALSE)" }

// IfFound is a column of the row that a key is of, or a value where there is no row, or NULL in it.
func IfFound(key, column, other string) string {
	return "COALESCE(IF(" + Found(key) + ", " + column + ", " + other + "), " + other + ")"
}

// classes are all classes, the narrowest first. Each statement about visibility,
// the oracle in memory, and each generator and specification of the tests are made from them. A class that is
// added here, with a constant above, is added to schema.sql, too.
var classes = []class{
	{Private, "pri", never, false, func(Granted) bool { return false }},
	{Friends, "fri", "g.user_id > 0 AND g.is_friend", false, func(g Granted) bool { return g.Friend }},
	{Family, "fam", "g.user_id > 0 AND g.is_family", false, func(g Granted) bool { return g.Family }},
	{FriendsFamily, "ff", "g.user_id > 0 AND (g.is_friend OR g.is_family)", false, func(g Granted) bool { return g.Friend || g.Family }},
	{Followers, "fol", always, true, func(g Granted) bool { return g.Follows }},
	{Public, "pub", always, false, func(Granted) bool { return true }},
}

// shown are the classes that not the owner alone may see.
var shown = slices.DeleteFunc(slices.Clone(classes), func(c class) bool { return c.granted == never })

// Classes returns all visibilities, the narrowest first.
func Classes() []Visibility {
	all := make([]Visibility, len(classes))
	for i, c := range classes {
		all[i] = c.Visibility
	}
	return all
}

// ShownTo reports whether photos of class v are shown to a viewer about which the owner's row
// says g, unless a block stands between the two. Photos of a class that does not exist are
// shown to no member.
func (v Visibility) ShownTo(g Granted) bool {
	return slices.ContainsFunc(classes, func(c class) bool { return c.Visibility == v && c.shownTo(g) })
}

// EachShown is the part of a statement that is about each class that not the owner alone
// may see. granted is the condition on which a viewer that calls the owner a contact does, by the owner's
// row g of contacts about the viewer, which may be missing.
func EachShown(separator string, part func(v Visibility, granted string) string) string {
	return eachOf(shown, separator, func(c class) string { return part(c.Visibility, c.granted) })
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

// SightJoins joins to a statement the rows that [Sight] is about. The statement has, before it,
// the members v as rows of users, and photo, the id of a photo: an expression, such
// as q.photo. The aliases that it adds are x, the photo; o, its owner; g, the owner's row
// of contacts about v; f, v's row about the owner; h, the owner's block of v; and k, the block of the owner by v. It reads a row of
// each by its key. It adds no rows unless a block is there twice.
func SightJoins(photo string) string { return PhotoJoins(photo) + ViewerJoins }

// PhotoJoins are the joins of [SightJoins] about the photo alone. Before the members are joined, they
// cost as much in all as they else cost for each member.
func PhotoJoins(photo string) string {
	return `
LEFT JOIN photos x ON x.id = ` + photo + `
LEFT JOIN users o ON o.id = x.owner_id`
}

// ViewerJoins are the rest of [SightJoins].
const ViewerJoins = `
LEFT JOIN contacts g ON g.user_id = o.id AND g.contact_id = v.id
LEFT JOIN contacts f ON f.user_id = v.id AND f.contact_id = o.id
LEFT JOIN blocks h ON h.user_id = o.id AND h.blocked_id = v.id
LEFT JOIN blocks k ON k.user_id = v.id AND k.blocked_id = o.id`

// Sight is whether member v may see photo x, as an expression over the tables of
// [SightJoins] that is never NULL. An owner sees each of its own photos. To other members the
// conditions are those of [MySQL.Look], but that v need not call the owner a
// contact, unless the photo is for followers: the read is about contacts, and privacy is not. A photo that does not
// exist, or whose owner does not, is seen by no member.
var Sight = "COALESCE(" + Found("o.id") + " AND (o.id = v.id OR NOT " + Found("h.user_id") + " AND NOT " + Found("k.user_id") + " AND (" +
	eachOf(shown, " OR ", func(c class) string {
		if c.follows {
			return c.is() + " AND " + c.granted + " AND " + Found("f.user_id")
		}
		return c.is() + " AND " + c.granted
	}) + ")), FALSE)"
