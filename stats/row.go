package stats

// row is what all series of one key and server, on whichever connection, have in common.
type row struct {
	rowID

	registry *Registry
	// number is unique; keyNumber is shared by the rows that differ in the server only.
	number, keyNumber int

	// closed is what closed connections have counted; nil while there are none. Guarded by Registry.totals.
	closed *Row
}

// rowID names a row.
type rowID struct {
	keyID

	server string
}

// keyID names a row of a snapshot's sums, in which servers are added up.
type keyID struct {
	client bool
	key    Key
}

func (r Row) id() rowID { return rowID{keyID{r.Client, r.Key}, r.Server} }

// serversPerSeries is how many rows there may be for each allowed key: more than one, because a client's rows are by server too.
const serversPerSeries = 4

// rowOf gives the row of a key and server, or the one that stands for it beyond a limit.
func (r *Registry) rowOf(id rowID) *row {
	r.mu.Lock()
	found := r.rows[id]

	if found != nil {
		r.mu.Unlock()

		return found
	}

	id.key = id.key.clean()
	number, known := r.keys[id.keyID]

	overKeys := !known && len(r.keys) >= r.limits.series
	if overKeys {
		id.key = id.key.beyond()
		number, known = r.keys[id.keyID]
	}

	if !known {
		number = len(r.keys)
		r.keys[id.keyID] = number
	}

	found = r.rows[id]

	overServers := found == nil && id.server != "" && len(r.rows) >= serversPerSeries*r.limits.series
	if overServers {
		id.server = Other
		found = r.rows[id]
	}

	if found == nil {
		found = &row{registry: r, number: len(r.inOrder), keyNumber: number, rowID: id}
		r.rows[id] = found
		r.inOrder = append(r.inOrder, found)
	}

	r.mu.Unlock()

	if overKeys {
		r.reportf(reportSeries, "more than %d series: further ones are counted as %s (WithSeriesLimit)", r.limits.series, Other)
	}

	if overServers {
		r.reportf(reportServers, "more than %d series by server: the servers of further ones are counted as %s (WithSeriesLimit)",
			serversPerSeries*r.limits.series, Other)
	}

	return found
}

// closedRow gives the totals of closed connections of this row. The caller holds Registry.totals.
func (r *row) closedRow() *Row {
	if r.closed == nil {
		r.closed = &newRows(r.registry.layout, 1)[0]
		r.name(r.closed)
	}

	return r.closed
}

// name says whose row it is.
func (r *row) name(row *Row) { row.Client, row.Server, row.Key = r.client, r.server, r.key }

// newRows makes n rows with empty histograms.
func newRows(l *layout, n int) []Row {
	return (&slab{}).rows(l, n, n)
}

// slab is where rows of several connections are taken from: a block for each connection would waste a tenth of the memory in rounding
// up. It is small, because a row that somebody keeps holds on to all of it.
type slab struct {
	free   []Row
	counts []uint64
}

// slabRows rows fill 26 pages of memory, and with the default buckets their counts 28.
const slabRows = 1024

// rows takes n rows with empty histograms. A new slab has at least so many rows as chunk says.
func (s *slab) rows(l *layout, n, chunk int) []Row {
	if len(s.free) < n {
		s.free = make([]Row, max(n, chunk))
	}

	if len(s.counts) < n*2*l.buckets() {
		s.counts = make([]uint64, max(n, chunk)*2*l.buckets())
	}

	rows := s.free[:n:n]
	s.free = s.free[n:]

	take := func() Histogram {
		h := Histogram{Bounds: l.bounds, Counts: s.counts[:l.buckets():l.buckets()]}
		s.counts = s.counts[l.buckets():]

		return h
	}

	for i := range rows {
		rows[i].Wire, rows[i].Size = take(), take()
	}

	return rows
}

// isEmpty says that a row has nothing in it.
func isEmpty(r *Row) bool { return r.Messages == 0 && r.Wire.Sum == 0 && r.Size.Sum == 0 }

// reset empties a row.
func reset(r *Row) {
	clear(r.Wire.Counts)
	clear(r.Size.Counts)
	r.Messages, r.Wire.Sum, r.Size.Sum, r.Exemplar = 0, 0, 0, nil
}

// addRow adds what another row has counted. The exemplar is left to the caller.
func addRow(to, other *Row) {
	to.Messages += other.Messages
	addHistogram(&to.Wire, other.Wire)
	addHistogram(&to.Size, other.Size)
}

// sums adds rows up by number.
type sums struct {
	registry *Registry
	rows     []Row
	used     []bool
}

func newSums(r *Registry, n int) *sums {
	return &sums{registry: r, rows: newRows(r.layout, n), used: make([]bool, n)}
}

func (s *sums) add(number int, r *Row) {
	if n := number + 1 - len(s.rows); n > 0 { // younger than s
		s.rows = append(s.rows, newRows(s.registry.layout, n)...)
		s.used = append(s.used, make([]bool, n)...)
	}

	if isEmpty(r) && s.used[number] {
		return
	}

	sum := &s.rows[number]
	if !s.used[number] {
		s.used[number] = true
		sum.Client, sum.Server, sum.Key = r.Client, r.Server, r.Key
	}

	addRow(sum, r)
	sum.Exemplar = s.registry.better(sum.Exemplar, r.Exemplar)
}

// result gives the rows to which something was added, in the order of their numbers.
func (s *sums) result() []Row {
	rows := make([]Row, 0, len(s.rows))

	for i := range s.rows {
		if s.used[i] {
			rows = append(rows, s.rows[i])
		}
	}

	return rows
}
