(* Theorem (c) under a causal mask (new ground beyond theorem (c)).

   Query i sees the keys up to i + nk - nq (bottom-right alignment, nq <= nk).
   flash2 visits, for query block i, the key blocks that are not fully masked, and
   flash1, for key block j, the query blocks that are not (both proved).  Ragged
   tiles included, the traffic is

     flash2   2 nq d + nq + 2d sum_i min(nk, visited_i bc)
     flash1   nq (d + 2) + 2 nk d + (3d + 4) sum_j (nq - first_j br)

   and for nq = nk = N, with T_r = cdiv N br and T_c = cdiv N bc,

     flash2, bc divides br   2 N d + N + d (br T_r (T_r - 1) + 2 N)
     flash1, br divides bc   N (d + 2) + 2 N d + (3d + 4) (N T_c - bc T_c (T_c - 1) / 2)

   so about half of the traffic without a mask.  For flash2 with bc = 1 and the
   largest br that fits, the leading constant is 2, and
   2 N^2 d^2 / M <= traffic <= 18 N^2 d^2 / M for 8d + 4 <= M <= N d.

   Source: Dao 2023 (arXiv 2307.08691), section 3.1; constants derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Tiles Traffic TrafficBounds.
Import ListNotations.

(* The keys that the last row of query block i sees, and the key blocks they fill. *)
Definition keys_seen nq nk br i := Nat.min nq ((i + 1) * br) + (nk - nq).
Definition visited nq nk br bc i := cdiv (keys_seen nq nk br i) bc.

(* The first query block with a row that sees a key of block j. *)
Definition first nq nk br bc j := (j * bc - (nk - nq)) / br.

Definition flash2_causal nq nk d br bc := flash2_upto (visited nq nk br bc) nq nk d br bc.
Definition flash1_causal nq nk d br bc := flash1_from (first nq nk br bc) nq nk d br bc.

Definition sees nq nk i j := j <= i + (nk - nq).
Definition block_seen nq nk br bc i j :=
  exists r c, In r (tile nq br i) /\ In c (tile nk bc j) /\ sees nq nk r c.

Lemma in_tile n b i r : In r (tile n b i) <-> i * b <= r < Nat.min n ((i + 1) * b).
Proof. unfold tile, rows. rewrite in_seq. nia. Qed.

(* A block is seen when its last row sees its first key. *)
Lemma block_seen_corner nq nk br bc i j : nq <= nk -> 0 < br -> 0 < bc ->
  i < cdiv nq br -> j < cdiv nk bc ->
  (block_seen nq nk br bc i j <-> j * bc < keys_seen nq nk br i).
Proof.
  intros Hn Hr Hc Hi Hj. unfold block_seen, keys_seen, sees.
  assert (Li : i * br < nq).
  { pose proof (cdiv_upper nq br Hr).
    assert ((i + 1) * br <= cdiv nq br * br) by (apply Nat.mul_le_mono_r; lia). lia. }
  assert (Lj : j * bc < nk).
  { pose proof (cdiv_upper nk bc Hc).
    assert ((j + 1) * bc <= cdiv nk bc * bc) by (apply Nat.mul_le_mono_r; lia). lia. }
  split.
  - intros (r & c & Hr' & Hc' & H). apply in_tile in Hr', Hc'. lia.
  - intros H. exists (Nat.min nq ((i + 1) * br) - 1), (j * bc).
    rewrite !in_tile. lia.
Qed.

Theorem visited_blocks nq nk br bc i j : nq <= nk -> 0 < br -> 0 < bc ->
  i < cdiv nq br -> j < cdiv nk bc ->
  (block_seen nq nk br bc i j <-> j < visited nq nk br bc i).
Proof.
  intros Hn Hr Hc Hi Hj. rewrite block_seen_corner by assumption. unfold visited.
  pose proof (cdiv_lower (keys_seen nq nk br i) bc Hc).
  pose proof (cdiv_upper (keys_seen nq nk br i) bc Hc).
  set (v := cdiv (keys_seen nq nk br i) bc) in *. clearbody v. split; intros L.
  - apply Nat.nle_gt. intros L'. apply (Nat.mul_le_mono_r _ _ bc) in L'. lia.
  - assert ((j + 1) * bc <= v * bc) by (apply Nat.mul_le_mono_r; lia). lia.
Qed.

Theorem first_blocks nq nk br bc i j : nq <= nk -> 0 < br -> 0 < bc ->
  i < cdiv nq br -> j < cdiv nk bc ->
  (block_seen nq nk br bc i j <-> first nq nk br bc j <= i).
Proof.
  intros Hn Hr Hc Hi Hj. rewrite block_seen_corner by assumption. unfold first, keys_seen.
  assert (Lj : j * bc < nk).
  { pose proof (cdiv_upper nk bc Hc).
    assert ((j + 1) * bc <= cdiv nk bc * bc) by (apply Nat.mul_le_mono_r; lia). lia. }
  pose proof (Nat.div_mod (j * bc - (nk - nq)) br ltac:(lia)) as E.
  pose proof (Nat.mod_upper_bound (j * bc - (nk - nq)) br ltac:(lia)) as U.
  set (f := _ / br) in *. set (rest := _ mod br) in *. clearbody f rest. split; intros L.
  - apply Nat.nlt_ge. intros L'.
    assert ((i + 1) * br <= f * br) by (apply Nat.mul_le_mono_r; lia). lia.
  - assert (f * br <= i * br) by (apply Nat.mul_le_mono_r; lia). lia.
Qed.

(* Closed forms *)

Theorem flash2_causal_traffic nq nk d br bc : 0 < br ->
  traffic (flash2_causal nq nk d br bc)
  = 2 * nq * d + nq
    + 2 * d * sum (cdiv nq br) (fun i => Nat.min nk (visited nq nk br bc i * bc)).
Proof.
  intros Hr. unfold flash2_causal. rewrite flash2_upto_traffic by exact Hr.
  unfold rows_upto. lia.
Qed.

Theorem flash1_causal_traffic nq nk d br bc : 0 < br -> 0 < bc ->
  traffic (flash1_causal nq nk d br bc)
  = nq * (d + 2) + 2 * nk * d
    + (3 * d + 4) * sum (cdiv nk bc) (fun j => nq - first nq nk br bc j * br).
Proof.
  intros Hr Hc. unfold flash1_causal. rewrite flash1_from_traffic by assumption.
  unfold rows_from. lia.
Qed.

(* The sum of the rows up to the end of each tile, twice. *)
Lemma sum_ends n b : 0 < b -> let t := cdiv n b in
  2 * sum t (fun i => Nat.min n ((i + 1) * b)) = b * t * (t - 1) + 2 * n.
Proof.
  intros Hb t. unfold t.
  pose proof (cdiv_lower n b Hb) as L. pose proof (cdiv_upper n b Hb) as U.
  set (u := cdiv n b) in *. clearbody u.
  destruct u as [| u]; [ cbn; lia | ]. cbn [sum].
  replace (Nat.min n ((u + 1) * b)) with n by lia.
  rewrite (sum_ext u _ (fun i => (i + 1) * b)).
  - assert (E : forall k, 2 * sum k (fun i => (i + 1) * b) = b * (k + 1) * k).
    { induction k; cbn [sum]; [ lia | rewrite Nat.mul_add_distr_l, IHk; lia ]. }
    rewrite Nat.mul_add_distr_l, E. replace (S u - 1) with u by lia. lia.
  - intros i Hi. assert ((i + 1) * b <= u * b) by (apply Nat.mul_le_mono_r; lia). lia.
Qed.

Theorem flash2_causal_exact N d br k : 0 < br -> 0 < k -> forall bc, br = k * bc ->
  let t := cdiv N br in
  traffic (flash2_causal N N d br bc) = 2 * N * d + N + d * (br * t * (t - 1) + 2 * N).
Proof.
  intros Hr Hk bc Hb t. rewrite flash2_causal_traffic by exact Hr.
  unfold t. rewrite <- sum_ends by exact Hr. fold t.
  rewrite (sum_ext t _ (fun i => Nat.min N ((i + 1) * br))); [ lia | ].
  intros i Hi. unfold visited, keys_seen. rewrite Nat.sub_diag, Nat.add_0_r.
  assert (Hc : 0 < bc) by (destruct bc; lia).
  pose proof (cdiv_lower (Nat.min N ((i + 1) * br)) bc Hc) as L.
  pose proof (cdiv_upper (Nat.min N ((i + 1) * br)) bc Hc) as U.
  destruct (Nat.le_ge_cases N ((i + 1) * br)) as [H | H].
  { replace (Nat.min N ((i + 1) * br)) with N in * by lia. lia. }
  replace (Nat.min N ((i + 1) * br)) with ((i + 1) * br) in * by lia.
  set (v := cdiv ((i + 1) * br) bc) in *. clearbody v.
  assert (v = (i + 1) * k); [ | subst; lia ].
  subst br. destruct (Nat.lt_trichotomy v ((i + 1) * k)) as [G | [G | G]]; [ | exact G | ].
  - assert ((v + 1) * bc <= (i + 1) * k * bc) by (apply Nat.mul_le_mono_r; lia). lia.
  - assert (((i + 1) * k + 1) * bc <= v * bc) by (apply Nat.mul_le_mono_r; lia). lia.
Qed.

Theorem flash1_causal_exact N d br bc k : 0 < br -> 0 < bc -> bc = k * br ->
  let t := cdiv N bc in
  2 * traffic (flash1_causal N N d br bc) + (3 * d + 4) * (bc * t * (t - 1))
  = 2 * (N * (d + 2) + 2 * N * d + (3 * d + 4) * (N * t)).
Proof.
  intros Hr Hc Hb t. rewrite flash1_causal_traffic by assumption. fold t.
  assert (E : forall u, u <= t ->
    2 * sum u (fun j => N - first N N br bc j * br) + bc * u * (u - 1) = 2 * N * u).
  { pose proof (cdiv_upper N bc Hc) as U. fold t in U.
    induction u; intros Hu; cbn [sum]; [ lia | ].
    specialize (IHu ltac:(lia)). unfold first at 2. rewrite Nat.sub_diag, Nat.sub_0_r.
    replace (u * bc / br) with (u * k) by (subst bc; rewrite Nat.mul_assoc, Nat.div_mul; lia).
    replace (u * k * br) with (u * bc) by (subst bc; lia).
    assert ((u + 1) * bc <= t * bc) by (apply Nat.mul_le_mono_r; lia).
    replace (S u - 1) with u by lia.
    destruct u as [| u]; [ cbn [sum] in *; lia | ].
    replace (S u - 1) with u in IHu by lia. lia. }
  specialize (E t (le_n t)).
  apply (f_equal (fun x => (3 * d + 4) * x)) in E. lia.
Qed.

(* Sandwich for flash2 at its best tiles *)

Definition flash2_causal_best N d M := traffic (flash2_causal N N d (flash2_best_br d M) 1).

Theorem flash2_causal_best_fits N d M : 4 * d + 3 <= M ->
  fits M (flash2_causal N N d (flash2_best_br d M) 1).
Proof.
  intros HM. apply flash2_fits. unfold flash2_best_br.
  destruct (largest_count N (2 * d + 3) (2 * d) M) as (_ & H & _); lia.
Qed.

(* In terms of t = ceil(N/br): d N (t + 3) + N <= traffic <= d N (t + 4) + N. *)
Lemma flash2_causal_count N d br : 0 < br -> let t := cdiv N br in
  d * N * (t + 3) + N <= traffic (flash2_causal N N d br 1) <= d * N * (t + 4) + N.
Proof.
  intros Hr t. rewrite (flash2_causal_exact N d br br Hr Hr 1) by lia. fold t.
  pose proof (cdiv_lower N br Hr) as L. pose proof (cdiv_upper N br Hr) as U. fold t in L, U.
  clearbody t. destruct t as [| t]; [ replace N with 0 by lia; lia | ].
  replace (S t - 1) with t by lia.
  assert (N * t <= br * S t * t) by (apply Nat.mul_le_mono_r; lia).
  assert (br * t <= N) by lia.
  assert (br * t * S t <= N * S t) by (apply Nat.mul_le_mono_r; lia).
  assert (d * (N * t) <= d * (br * S t * t)) by (apply Nat.mul_le_mono_l; lia).
  assert (d * (br * t * S t) <= d * (N * S t)) by (apply Nat.mul_le_mono_l; lia).
  split; lia.
Qed.

Theorem flash2_causal_best_tight N d M : 4 * d + 3 <= M ->
  2 * N * N * d * d <= flash2_causal_best N d M * (M - 2 * d) /\
  flash2_causal_best N d M * (M - (4 * d + 3))
  <= 2 * N * N * d * d + 3 * N * N * d + M * N * (5 * d + 1).
Proof.
  intros HM. unfold flash2_causal_best, flash2_best_br.
  destruct (largest_count N (2 * d + 3) (2 * d) M) as (Hb & _ & L & U); [ lia | lia | ].
  pose proof (flash2_causal_count N d _ Hb) as [C1 C2].
  set (q := traffic _) in *. clearbody q.
  set (t := cdiv N _) in *. clearbody t.
  replace (M - 2 * d - (2 * d + 3)) with (M - (4 * d + 3)) in U by lia.
  apply (Nat.mul_le_mono_r _ _ (M - 2 * d)) in C1.
  apply (Nat.mul_le_mono_r _ _ (M - (4 * d + 3))) in C2.
  apply (Nat.mul_le_mono_l _ _ (N * d)) in L.
  apply (Nat.mul_le_mono_l _ _ (N * d)) in U.
  assert ((4 * N * d + N) * (M - (4 * d + 3)) <= (4 * N * d + N) * M)
    by (apply Nat.mul_le_mono_l; lia).
  set (x := M - (4 * d + 3)) in *. set (y := M - 2 * d) in *. clearbody x y.
  split; lia.
Qed.

Theorem flash2_causal_best_sandwich N d M : 0 < d -> 8 * d + 4 <= M <= N * d ->
  2 * N * N * d * d <= flash2_causal_best N d M * M <= 18 * N * N * d * d.
Proof.
  intros Hd HM. split.
  - destruct (flash2_causal_best_tight N d M ltac:(lia)) as [L _].
    set (q := flash2_causal_best N d M) in *. clearbody q.
    assert (q * (M - 2 * d) <= q * M) by (apply Nat.mul_le_mono_l; lia). lia.
  - unfold flash2_causal_best, flash2_best_br.
    pose proof (largest_count_crude N (2 * d + 3) (2 * d) M ltac:(lia) ltac:(lia)) as U.
    destruct (largest_count N (2 * d + 3) (2 * d) M) as (Hb & B & _ & _); [ lia | lia | ].
    cbn zeta in U. pose proof (flash2_causal_count N d _ Hb) as [_ C].
    set (b := (M - 2 * d) / (2 * d + 3)) in *.
    assert (HN : 2 * b <= N).
    { clearbody b. assert (d * (2 * b) <= d * N) by lia. apply Nat.mul_le_mono_pos_l in H; lia. }
    specialize (U HN). cbn zeta in C.
    set (q := traffic _) in *. set (t := cdiv N b) in *. clearbody q t.
    apply (Nat.mul_le_mono_r _ _ M) in C.
    apply (Nat.mul_le_mono_l _ _ (N * d)) in U.
    assert ((4 * N * d + N) * M <= (4 * N * d + N) * (N * d)) by (apply Nat.mul_le_mono_l; lia).
    assert (N * N * d * 1 <= N * N * d * d) by (apply Nat.mul_le_mono_l; lia).
    lia.
Qed.
