package replica

// mix folds b into the hash a (the finalizer of splitmix64), so that rows can follow from seed, key and time without being stored.
func mix(a, b uint64) uint64 {
	h := a + 0x9e3779b97f4a7c15*(b+1)
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// mixBytes folds all of p into the hash a.
func mixBytes(a uint64, p []byte) uint64 {
	h := mix(a, uint64(len(p)))
	for _, b := range p {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	return mix(h, 0)
}
