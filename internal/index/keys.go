package index

import "github.com/activityd/activityd/internal/member"

// settingsKey holds what the sets were built with; see [Settings].
const settingsKey = "activityd_settings"

// userKeyPrefix begins the key of every set, and of nothing else.
const userKeyPrefix = "user_"

// UserKey is the key of a user's set.
func UserKey(user member.ID) string { return userKeyPrefix + user.String() }

// guardKey is the key of the guard of a user's set. The braces make the name of
// the set the part that a cluster hashes, so both lie in one slot and one script
// may touch both.
func guardKey(user member.ID) string { return "guard_{" + UserKey(user) + "}" }
