package index

import (
	"strings"

	"github.com/activityd/activityd/internal/member"
)

// userKeyPrefix begins the keys of the sets and of those that a probe makes.
const userKeyPrefix = "user_"

// UserKey is the key of a user's set.
func UserKey(user member.ID) string { return userKeyPrefix + user.String() }

// guardKey is the key of the guard of the set with the given key. The braces make the
// name of the set the part that a cluster hashes, so both lie in one slot and one script
// may touch both.
func guardKey(set string) string { return "guard_{" + set + "}" }

// settingsKey begins the keys of what the sets were built with, see [Settings], and of the run of the server that they were
// written to.
const settingsKey = "activityd_settings"

// probeKeys are the keys of the set that a probe makes and deletes at once, and of
// its guard, where a tag, such as "_{5}" or nothing, chooses the node. They begin like those of a
// user's set, so that the same rules of an ACL hold for both, and no id can be read from them.
func probeKeys(tag string) []string {
	if tag == "" {
		return []string{userKeyPrefix + "probe", guardKey(userKeyPrefix + "probe")}
	}
	return []string{userKeyPrefix + "probe" + tag, "guard_probe" + tag}
}

// ownerOf returns the owner of the set with this key. The keys of probes have none.
func ownerOf(key string) (member.ID, bool) {
	id, err := member.Parse(strings.TrimPrefix(key, userKeyPrefix))
	return id, err == nil && strings.HasPrefix(key, userKeyPrefix)
}

// ownersOf returns the owners of the sets among these keys.
func ownersOf(keys []string) (owners []member.ID) {
	for _, key := range keys {
		if id, ok := ownerOf(key); ok {
			owners = append(owners, id)
		}
	}
	return owners
}

// isOwn reports whether key is that of a set or of a guard. The guards of sets that may be old
// are deleted with them: an update that found no set there may have begun before an add whose
// deletion of the guard was lost.
func isOwn(key string) bool {
	_, isSet := ownerOf(key)
	_, isGuard := ownerOf(strings.TrimSuffix(strings.TrimPrefix(key, "guard_{"), "}"))
	return isSet || isGuard
}
