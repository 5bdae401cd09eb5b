package index

import (
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
)

// materializeKey holds whose sets are kept; see [Ledger.StoreMaterialize].
const materializeKey = "activityd_materialize"

// userKeyPrefix begins the keys of the sets and of those that [Index.Probe] makes.
const userKeyPrefix = "user_"

// UserKey is the key of a user's set.
func UserKey(user member.ID) string { return userKeyPrefix + user.String() }

// guardKey is the key of the guard of the set with the given key. The braces make the
// name of the set the part that a cluster hashes, so both lie in one slot and one script
// may touch both.
func guardKey(set string) string { return "guard_{" + set + "}" }

// The fence of the process that sweeps for the audit, and where that sweep is. They share
// a slot, so that one script may touch both.
const (
	sweepFenceKey = "activityd_{sweep}_fence"
	sweepStateKey = "activityd_{sweep}_state"
)

// The keys that lie on each node beside its sets: one of each kind on a single server; in a
// cluster one for each tag, a number in braces that ends the name. See [client.tags].

// probeKeys are the keys of the set that [Index.Probe] makes and deletes at once, and of
// its guard. They begin like those of a user's set, so that the same rules of an ACL hold
// for both, and no id can be read from them.
func probeKeys(tag string) []string {
	if tag == "" {
		return []string{userKeyPrefix + "probe", "guard_{" + userKeyPrefix + "probe}"}
	}
	return []string{userKeyPrefix + "probe_" + tag, "guard_probe_" + tag}
}

// settingsKeyOf is the key of what the sets were built with; see [Settings].
func settingsKeyOf(tag string) string { return tagged("activityd_settings", tag) }

// markKeyOf is the key of a number that only ever rises; see [Index.Probe].
func markKeyOf(tag string) string { return tagged("activityd_mark", tag) }

// serverKey is the key of the run of the server to which the data were written, lostKey that of
// the time at which data were last found to be lost, in unix milliseconds, and purgeKey that of
// the lock of the process that deletes the sets of the node.
func serverKey(tag string) string { return tagged("activityd_server", tag) }
func lostKey(tag string) string   { return tagged("activityd_lost", tag) }
func purgeKey(tag string) string  { return tagged("activityd_purge", tag) }

func tagged(name, tag string) string {
	if tag == "" {
		return name
	}
	return name + "_" + tag
}

func tagsOf(client redis.UniversalClient) []string {
	if _, isCluster := client.(*redis.ClusterClient); isCluster {
		return allTags()
	}
	return []string{""}
}

// ownKeys are the keys that are neither sets nor guards.
func ownKeys(client redis.UniversalClient) []string {
	keys := []string{materializeKey, sweepFenceKey, sweepStateKey}
	for _, tag := range tagsOf(client) {
		keys = append(keys, settingsKeyOf(tag), markKeyOf(tag), serverKey(tag), lostKey(tag), purgeKey(tag))
	}
	return keys
}
