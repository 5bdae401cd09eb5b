package index

import (
	"strings"

	"github.com/activityd/activityd/internal/member"
)

// userKeyPrefix begins the keys of the sets and of the probes' sets.
const userKeyPrefix = "user_"

// UserKey is the key of a user's set.
func UserKey(user member.ID) string { return userKeyPrefix + user.String() }

// guardKey returns the key of a set's guard. The braces make the name of the set the part that a
// cluster hashes. So both keys lie in the same slot and a script may touch both.
func guardKey(set string) string { return "guard_{" + set + "}" }

// settingsKey begins the keys of the stored settings, see [Settings], and of the server's run at
// the time of the writes.
const settingsKey = "activityd_settings"

// probeKeys are the keys of the set that a probe makes and deletes at once, and of its guard. The
// tag, "_{5}" or nothing, chooses the node. The keys begin like the keys of a user's set, so that
// the same rules of an ACL hold for both, and no id can be read from them.
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

// ownersOf returns the owners of the sets among the keys.
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
