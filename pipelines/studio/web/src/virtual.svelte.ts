/** The rows of a long list that are in or near the window. All rows have the same height. */

/** Rows above and below the window that are in the document. */
const NEAR = 12;
/** Rows that can be scrolled to; browsers limit the height of a page. Longer lists have several parts. */
const PART = 200_000;

export class VirtualRows {
  /** The element with the table. It is as high as all rows of the part, and the table is moved to where its rows belong. */
  space = $state.raw<HTMLElement>();
  total = $state(0);
  /** Heights of a row and of the header of the table, pixels. */
  height = $state(52);
  head = $state(29);
  /** Position of the first row that is in the window, and the number of rows there. */
  first = $state(0);
  visible = $state(0);

  /** Position of the first row of the part. */
  readonly base = $derived(Math.floor(this.first / PART) * PART);
  readonly last = $derived(Math.min(this.total, this.base + PART));
  readonly start = $derived(Math.max(this.base, this.first - NEAR));
  readonly end = $derived(Math.min(this.last, this.first + this.visible + NEAR));
  readonly positions = $derived(Array.from({ length: Math.max(0, this.end - this.start) }, (_, at) => this.start + at));
  /** Space for the rows before those in the document, and for all with the header of the table, pixels. */
  readonly before = $derived((this.start - this.base) * this.height);
  readonly size = $derived(this.head + (this.last - this.base) * this.height);

  /** Shows a list of so many rows, from this one. */
  show(total: number, first: number) {
    this.total = total;
    this.first = Math.max(0, Math.min(first, total - 1));
    this.visible ||= Math.ceil(innerHeight / this.height);
  }

  /** Finds the height of the rows that are there. */
  measure() {
    const row = this.space?.querySelector("tbody tr:not(.waiting)");
    const height = row?.getBoundingClientRect().height;
    if (height) this.height = height;
    this.head = this.space?.querySelector("thead")?.getBoundingClientRect().height ?? this.head;
    this.update();
  }

  /** Where the first row of the part begins, in the window; and how much of that a header hides. */
  private place(): [number, number] {
    const top = (this.space?.getBoundingClientRect().top ?? 0) + this.head;
    return [top, document.querySelector("header")?.getBoundingClientRect().height ?? 0];
  }

  /** Reads from the window which rows are in it. */
  update() {
    if (!this.space) return;
    const [top, hidden] = this.place();
    const above = Math.max(0, Math.floor((hidden - top) / this.height + 0.01));
    this.first = Math.max(this.base, Math.min(this.base + above, this.last - 1));
    const free = innerHeight - Math.max(hidden, top);
    this.visible = Math.max(1, Math.min(Math.ceil(free / this.height), this.last - this.first));
  }

  /** Scrolls until this row is the first one in the window; for the first row of all, to the top of the page. */
  scrollTo(at: number) {
    const wanted = Math.max(0, Math.min(at, this.total - 1));
    // The part of the row.
    this.first = wanted;
    const [top, hidden] = this.place();
    scrollTo(0, wanted ? scrollY + top + (wanted - this.base) * this.height - hidden : 0);
    this.update();
  }
}
