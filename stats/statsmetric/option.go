package statsmetric

// Option sets up a [Producer]. Options come from this package's functions only.
type Option interface{ apply(c *config) }

type config struct{ perConn, delta bool }

type optionFunc func(c *config)

func (f optionFunc) apply(c *config) { f(c) }

// PerConnection exports each connection apart. The default is the sum over all connections.
func PerConnection() Option { return optionFunc(func(c *config) { c.perConn = true }) }

// Delta exports what was counted since the export before, and nothing for what has not changed. The default is cumulative.
func Delta() Option { return optionFunc(func(c *config) { c.delta = true }) }
