package contacts

// granted is what an owner must grant a viewer for the sight of the photos of a
// class, by the owner's row g of contacts about the viewer, which may be missing. A class
// that is not here is granted to nobody.
var granted = map[Visibility]string{
	Public:        "TRUE",
	Friends:       "g.is_friend",
	Family:        "g.is_family",
	FriendsFamily: "(g.is_friend OR g.is_family)",
}

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
// exist, or whose owner does not, is seen by nobody.
var Sight = "COALESCE(o.id IS NOT NULL AND (o.id = v.id OR h.user_id IS NULL AND (" +
	inClass(Public) + " OR " + inClass(Friends) + " OR " + inClass(Family) + " OR " + inClass(FriendsFamily) + ")), FALSE)"

// inClass compares as newestIn does: with a literal that takes the collation of the column.
func inClass(class Visibility) string {
	return "x.visibility = _ascii'" + string(class) + "' AND " + granted[class]
}
